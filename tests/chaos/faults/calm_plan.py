"""A run in which nothing breaks: what plans of one fault are made of."""

from __future__ import annotations

from chaos_steps import Plan, Step

SOME = {"cls": "gratis", "cpu": "1"}
CALM = Plan(
    seed=0,
    theme="an operator that is broken",
    policy="fifo",
    nodes=(2,),
    election=False,
    standby=False,
    jumps=(),
    steps=(Step(0.0, "pods", {"prefix": "x", "count": 6, "seconds": 0.3, **SOME}), Step(2.5, "calm")),
    rules=(),
)

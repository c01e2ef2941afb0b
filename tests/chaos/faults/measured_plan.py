"""The run in which a Prometheus leaves something out: drawn from its seed, and from nothing else."""

from __future__ import annotations

import random

from chaos_steps import Plan, Step, moment
from metric_faults import WAYS as METRIC_WAYS


def measured_plan(seed: int) -> Plan:
    """Return a run with a busy service, whose rate a Prometheus tells in full first, and then in part.

    Batch comes when the operator knows that rate. At least one node has no pod of the service, and takes all of it.
    """
    rng = random.Random(f"measured {seed}")
    replicas = rng.randint(1, 2)
    steps = [
        Step(0.0, "service", {"name": "own", "replicas": replicas, "cpu": "1", "limit": 10}),
        Step(0.1, "measured"),
    ]
    for _ in range(rng.randint(1, 3)):
        begin = moment(rng, 1.2)
        steps.append(Step(begin, "metrics", {"says": rng.choice(METRIC_WAYS)}))
        steps.append(Step(round(begin + rng.uniform(0.3, 1.5), 2), "metrics", {"says": ""}))
    for number in range(rng.randint(2, 4)):
        seconds = round(rng.uniform(0.2, 0.6), 2)
        cls = rng.choice(("batch", "gratis"))
        how = {"prefix": f"run{number}", "cls": cls, "count": rng.randint(1, 4), "cpu": "1", "seconds": seconds}
        steps.append(Step(0.1 + moment(rng), "pods", how))
    return Plan(
        seed=seed,
        theme="a Prometheus that leaves something out",
        policy=rng.choice(("qpsm", "fifo-guarded")),
        nodes=(4,) * (replicas + rng.randint(1, 2)),
        election=False,
        standby=False,
        jumps=(),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        rules=(),
        warm=True,
        measured=True,
    )

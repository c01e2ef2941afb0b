"""The settings that each rule of the phases experiment chooses from, and the choice.

Called by `experiment`. All rules choose from sixteen, on workloads of seeds that no report uses, by the same score. The
score is the geometric mean over mean, p95 and p99 of job time, each relative to task level as in YARN. Invariant: the
same workloads, the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.phases.rules import DRF, FIFO, PHASES, PRINTED, SLOTS, TASK, TASK_FIFO, TASK_UTILITY
from cotide_lab.phases.utility import Weights
from cotide_lab.phases.workload import Workload
from cotide_lab.phases.world import Outcome, run

LATE: Final = (0.95, 0.99)
"""Quantiles of job time that are judged together with its mean."""
SIZES: Final = (1.0, 0.8, 0.65, 0.5)
"""Most cpu that a task holds, of its largest need."""


class RuleKnob(NamedTuple):
    """The setting of a rule: its weights, and the most cpu that a task holds (`rules.groups_of`)."""

    weights: Weights = Weights()
    size: float = 1.0

    def play(self, workload: Workload, rule: str) -> Outcome:
        """Run a workload."""
        return run(workload, rule, self.weights, size=self.size)


def _sized(*weights: Weights) -> tuple[RuleKnob, ...]:
    return tuple(RuleKnob(weight, size) for size in SIZES for weight in weights)


_SHORTNESS: Final = _sized(*(Weights(shortness=value) for value in (2.0, 8.0, 32.0, 128.0)))
"""From 8 on the score of the tuning mixes changes by less than 1 %, up to 512: no larger weight is better."""
_ALPHA: Final = _sized(*(Weights(alpha=value) for value in (0.0001, 0.001, 0.01, 1.0)))
_OVERCOMMIT: Final = _sized(*(Weights(overcommit=value) for value in (1.0, 1.15, 1.3, 3.0)))
"""A bound of 3 never acts on the tuning mixes: it is the end of the scale."""
_SIZED: Final = tuple(RuleKnob(size=float(size)) for size in np.linspace(1.0, 0.25, 16).round(2))
KNOBS: Final[dict[str, tuple[RuleKnob, ...]]] = {
    PHASES: _SHORTNESS,
    TASK_UTILITY: _SHORTNESS,
    PRINTED: _ALPHA,
    DRF: _OVERCOMMIT,
    FIFO: _OVERCOMMIT,
    TASK: _SIZED,
    TASK_FIFO: _SIZED,
    SLOTS: _SIZED,
}
"""Sixteen for each rule. A rule without a weight has more sizes instead. Task level can't be overcommitted, since a
task holds all its future needs."""


WEIGHTS: Final = {
    PHASES: "shortness",
    TASK_UTILITY: "shortness",
    PRINTED: "alpha",
    DRF: "overcommit",
    FIFO: "overcommit",
}
"""The weight that each rule chooses, where it has one."""


def weight_of(rule: str, knob: RuleKnob) -> str:
    """Return the weight that a rule chose, in words; empty where it has none."""
    name = WEIGHTS.get(rule)
    return f"{name} {getattr(knob.weights, name):g}" if name else ""


def late(seconds: Floats) -> Floats:
    """Return mean, p95 and p99."""
    return np.array([seconds.mean(), *np.quantile(seconds, LATE)])


def chosen(workloads: Sequence[Workload], rules: Sequence[str], progress: Callable[[str], None]) -> dict[str, RuleKnob]:
    """Return the best knob of each rule."""
    yarn = [late(RuleKnob().play(workload, TASK).job_seconds) for workload in workloads]
    found = {}
    for rule in rules:
        progress(rule)

        def score(knob: RuleKnob, rule: str = rule) -> float:
            own = [late(knob.play(workload, rule).job_seconds) for workload in workloads]
            return float(
                np.mean([np.log(values_array / base).mean() for values_array, base in zip(own, yarn, strict=True)])
            )

        found[rule] = min(KNOBS[rule], key=score)
    return found

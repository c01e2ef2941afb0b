"""The contenders of the capacity experiment, the settings of their knobs, and the goals of the comparison.

Called by `experiment`. Every contender with a knob has ten settings of it, and all see the same forecasts and prices.
All except plain Harmony have the two rules of the first step. Invariant: only the oracle knows the future.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cotide_lab.experiments.capacity.controllers import (
    Controller,
    Oblivious,
    Packing,
    Provisioning,
    Reactive,
    Stabilized,
    Unchanging,
)
from cotide_lab.experiments.capacity.learned import Learned
from cotide_lab.experiments.capacity.run import Outcome
from cotide_lab.experiments.capacity.scenarios import Scenario

OWN: Final = "cbp"
DEFAULT: Final = "cbp at the default"
BASELINE: Final = "oblivious"
ORACLE: Final = "oracle"
DO_NOTHING: Final = "always on"
REFUSE_ALL: Final = "always off"
LEVEL: Final = 0.25
"""The operator's default service level."""
LEVELS: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 0.85, 0.9, 0.95, 0.97, 0.99)
"""Settings of plans with a distribution of demand: from its lowest quantile to its highest."""
CERTAIN_LEVEL: Final = 0.75
"""Level of plans for a demand that counts as certain; any level gives nearly the same service (chosen)."""

Make = Callable[[Scenario, Learned, float], Controller]


@dataclass(frozen=True, slots=True)
class Contender:
    """The factory of a controller at a setting, its knob, and the tried settings."""

    make: Make
    knob: str
    settings: tuple[float, ...]


def _plan(knob: str, settings: tuple[float, ...], **rest: Any) -> Contender:
    return Contender(
        lambda scene, known, setting: Provisioning(scene, known, **{"level": CERTAIN_LEVEL, knob: setting} | rest),
        knob,
        settings,
    )


def contenders(service_level: float = LEVEL) -> dict[str, Contender]:
    """Return all by name; ``service_level``: of ours at the default.

    The settings include the natural ends of a knob: packing keeps no spare at 1, and at 0.4 reactive thresholds drop
    machines in each step without a waiting task.
    """
    return {
        OWN: _plan("level", LEVELS),
        DEFAULT: _plan("level", (service_level,)),
        "harmony": _plan("level", LEVELS, plain=True),
        BASELINE: Contender(
            lambda scene, known, reserve: Oblivious(scene, known, reserve=reserve),
            "reserve",
            (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5),
        ),
        "greedy": _plan("level", LEVELS, horizon=1, switching=False),
        "last value": _plan("reserve", (0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.8), source="last value"),
        "yesterday": _plan("reserve", (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.6, 1.8, 2.2, 3.0), source="yesterday"),
        "reactive": Contender(
            lambda scene, known, reserve: Reactive(scene, known, reserve=reserve),
            "reserve",
            (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5),
        ),
        "packing": Contender(
            lambda scene, known, reserve: Packing(scene, known, reserve=reserve),
            "reserve",
            (1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.6, 2.0, 2.5, 3.0),
        ),
        ORACLE: _plan("reserve", (0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5), source="oracle"),
        DO_NOTHING: Contender(lambda scene, _known, share: Unchanging(scene, share=share), "share", (1.0,)),
        REFUSE_ALL: Contender(lambda scene, _known, share: Unchanging(scene, share=share), "share", (0.0,)),
    }


def stabilized(contender: Contender, seconds: float) -> Contender:
    """Return a contender with machines that go only after ``seconds`` without demand for them; 0 leaves it
    unchanged."""
    if not seconds:
        return contender
    return Contender(
        lambda scene, known, setting: Stabilized(contender.make(scene, known, setting), seconds),
        contender.knob,
        contender.settings,
    )


@dataclass(frozen=True, slots=True)
class Goal:
    """Delays in seconds that a setting must keep in the mean of the tuning seeds."""

    name: str
    mean: float
    p95: float
    p99: float

    def excess(self, outcomes: Sequence[Outcome]) -> float:
        """Return the relative excess of the worst of the three means over outcomes above its limit; <= 0 keeps the
        goal."""
        limits = {"mean": self.mean, "p95": self.p95, "p99": self.p99}
        return max(
            float(np.mean([getattr(outcome, f"delay_{measure}") for outcome in outcomes])) / limit - 1.0
            for measure, limit in limits.items()
        )


GOALS: Final = (Goal("patient", 60.0, 300.0, 600.0), Goal("prompt", 10.0, 1.0, 300.0))
"""A task waits for a step and a boot, which is 540 s at most; or one in a hundred waits a step (chosen beforehand)."""

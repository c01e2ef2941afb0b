"""The policies of the placement experiment, and the knobs that each chooses from.

Read by `experiment`. Each policy has two knobs, how much it provides and how small a change it leaves alone, and six
settings of them; the one that costs least on a day of the tuning seeds runs. Invariant: no contender has more settings
than another, but that the oracle, which knows what comes, and the two that do nothing have one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Final, NamedTuple

from cotide_sim.experiments.placement.controllers import Nearest, PlacementController, PredictiveControl, Unmoved
from cotide_sim.experiments.placement.scenarios import DAY_STEPS, PlacementScenario

OWN: Final = "mpc"
GREEDY: Final = "greedy"
ORACLE: Final = "oracle"
NOTHING_MOVED: Final = "nothing moved"
REFUSE_ALL: Final = "refuse all"
INACTIVE: Final = (NOTHING_MOVED, REFUSE_ALL)
SHOWN: Final = (OWN, GREEDY)
TUNING_STEPS: Final = DAY_STEPS
"""Of each tuning seed's week (chosen: predictive control takes seconds a day)."""


class Knob(NamedTuple):
    """A policy with its settings, in words and made."""

    name: str
    make: Callable[[PlacementScenario], PlacementController]


def _bands(policy: Callable[..., PlacementController], provided: str, values: tuple[float, ...]) -> tuple[Knob, ...]:
    return tuple(
        Knob(f"{provided} {value:g}, band {band:g}", partial(policy, **{provided: value, "band": band}))
        for value, band in product(values, (0.0, 0.08, 0.2))
    )


CONTENDERS: Final[dict[str, tuple[Knob, ...]]] = {
    OWN: _bands(PredictiveControl, "quantile", (0.9, 0.95)),
    GREEDY: _bands(partial(PredictiveControl, horizon=1, reconfiguring=False), "quantile", (0.9, 0.95)),
    "last value": _bands(partial(PredictiveControl, source="last value"), "reserve", (1.05, 1.1)),
    "yesterday": _bands(partial(PredictiveControl, source="yesterday"), "reserve", (1.2, 1.5)),
    "nearest": tuple(
        Knob(f"reserve {reserve:g}, idle {idle:g}", partial(Nearest, reserve=reserve, idle=idle))
        for reserve, idle in product((1.05, 1.1), (0.1, 0.2, 0.3))
    ),
    ORACLE: (Knob("", partial(PredictiveControl, source="oracle", horizon=DAY_STEPS // 2)),),
    NOTHING_MOVED: (Knob("", partial(Unmoved, share=1.0)),),
    REFUSE_ALL: (Knob("", partial(Unmoved, share=0.0)),),
}
"""``greedy`` has the same forecast and plans one step without reconfiguration costs; ``nearest`` are thresholds; the
oracle has the true requests and prices of the next twelve hours."""

"""The contenders of the placement experiment, and ten settings for each contender with a knob.

Called by `experiment`. All planning contenders have the same program, prices and hysteresis, and differ in their
knowledge of the demand. Greedy plans one step without reconfiguration costs. Invariant: only the oracle knows the
future.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from cotide_lab.experiments.placement.controllers import Nearest, PlacementController, PredictiveControl, Unmoved
from cotide_lab.experiments.placement.scenarios import DAY_STEPS, PlacementScenario

OWN: Final = "mpc"
GREEDY: Final = "greedy"
ORACLE: Final = "oracle"
DO_NOTHING: Final = "unmoved"
REFUSE_ALL: Final = "no servers"
BANDS: Final = (0.08, 0.2)
"""Changes below these shares of a centre's servers are ignored; the first is the default of `cotide place`."""
QUANTILES: Final = (0.85, 0.9, 0.95, 0.97, 0.99)
"""Of the demand; the third is the default of `cotide place`."""

Setting = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Contender:
    """The factory of a controller at a setting of its level of safety and its hysteresis, and the tried settings."""

    make: Callable[[PlacementScenario, Setting], PlacementController]
    knob: str
    settings: tuple[Setting, ...]


def _plan(knob: str, levels: tuple[float, ...], bands: tuple[float, ...] = BANDS, **rest: Any) -> Contender:
    return Contender(
        lambda scene, setting: PredictiveControl(scene, band=setting[1], **{knob: setting[0]} | rest),
        f"{knob}, band",
        tuple(product(levels, bands)),
    )


CONTENDERS: Final = {
    OWN: _plan("quantile", QUANTILES),
    GREEDY: _plan("quantile", QUANTILES, horizon=1, reconfiguring=False),
    "last value": _plan("reserve", (1.0, 1.05, 1.1, 1.2, 1.3), source="last value"),
    "yesterday": _plan("reserve", (1.3, 1.6, 2.0, 2.5, 3.0), source="yesterday"),
    "nearest": Contender(
        lambda scene, setting: Nearest(scene, reserve=setting[0], band=setting[1]),
        "reserve, band",
        tuple(product((1.0, 1.05, 1.1, 1.2, 1.3), (0.1, 0.2))),
    ),
    ORACLE: _plan("reserve", (1.0, 1.01, 1.02, 1.05, 1.1), source="oracle", horizon=DAY_STEPS // 2),
    DO_NOTHING: Contender(lambda scene, setting: Unmoved(scene, setting[0]), "share", ((1.0, 0.0),)),
    REFUSE_ALL: Contender(lambda scene, setting: Unmoved(scene, setting[0]), "share", ((0.0, 0.0),)),
}
"""``nearest`` are thresholds; ``unmoved`` keeps the servers that the highest load of the week before needed."""

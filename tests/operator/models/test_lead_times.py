"""How long before a measured break the model warned, or the guard kept pods away."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.recording.samples import MeasuredMix
from cotide_operator.models.lead_times import LeadTimes
from cotide_operator.observability.metrics import Metrics

SLOT = 300.0
WEB = "shop/web"


class Scene:
    """Lead times of one service, and what was told of them."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.leads = LeadTimes(self.metrics, SLOT)

    def sees(self, *moments: tuple[float, bool, bool]) -> None:
        """Take (time, whether the model warns, whether the limit is broken)."""
        times, warned, broken = (np.array(column) for column in zip(*moments, strict=True))
        one = MeasuredMix(WEB, 100.0, 0.0, 10.0, 0.5, (), 5.0)
        self.leads.follow(times.astype(np.float64), [one] * len(moments), warned, broken)

    def told(self, since: str, what: str = "sum") -> float | None:
        labels = {"workload": WEB, "since": since}
        return self.metrics.registry.get_sample_value(f"cotide_qos_lead_time_seconds_{what}", labels)


def test_a_lead_runs_from_the_first_warning_to_the_break_and_each_episode_counts_once() -> None:
    scene = Scene()
    scene.sees((0, False, False), (15, True, False), (30, True, False), (45, True, True), (60, True, True))
    assert (scene.told("warning"), scene.told("warning", "count")) == (30.0, 1.0)
    scene.sees((75, False, False), (90, True, True))
    assert (scene.told("warning"), scene.told("warning", "count")) == (30.0, 2.0)


def test_a_warning_that_passed_before_the_break_is_none() -> None:
    scene = Scene()
    scene.sees((0, True, False), (15, False, False), (30, False, True))
    assert scene.told("warning") == 0.0


def test_refusals_beside_a_service_give_a_lead_of_their_own() -> None:
    scene = Scene()
    for now in (100.0, 350.0, 600.0):  # no more than a slot apart: one series
        scene.leads.refused([WEB], now)
    scene.sees((700, False, True))
    assert (scene.told("refusal"), scene.told("warning")) == (600.0, 0.0)


@pytest.mark.parametrize(
    ("refused", "lead"),
    [
        ([], 0.0),
        ([100.0], 0.0),  # more than a slot before
        ([100.0, 500.0], 200.0),  # of the second series
        ([800.0], 0.0),  # told before the sample was scored, but later than it
        ([650.0, 800.0], 50.0),
    ],
)
def test_only_refusals_that_went_on_until_the_break_count(refused: list[float], lead: float) -> None:
    scene = Scene()
    for now in refused:
        scene.leads.refused([WEB], now)
    scene.sees((700, False, True))
    assert scene.told("refusal") == lead


def test_nothing_is_left_of_a_workload_that_is_deleted() -> None:
    scene = Scene()
    scene.leads.refused([WEB], 600.0)
    scene.leads.forget(WEB)
    scene.sees((700, False, True))
    assert scene.told("refusal") == 0.0
    scene.metrics.forget_service(WEB)
    assert (scene.told("refusal"), scene.told("warning")) == (None, None)

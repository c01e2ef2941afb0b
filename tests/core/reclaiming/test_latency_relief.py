"""A service over its limit is relieved of batch work where the model says that this helps, and is worth what is lost.

The law of these tests: p = rate / 1000 x the sum of the weights of the jobs on the node, .1 a quiet one and .8 a loud
one. Jobs are placed while the service has no requests; then 1,000 a second come, and its limit of 10 ms breaks.
"""

from __future__ import annotations

import pytest
from engine_objects import running_pod
from latency_scene import BROKEN, GRATIS, HELD, KNOBS, Law, Scene

from cotide_core.events import Event, PodDeleted, PodUpserted, WorkloadDeleted
from cotide_core.reclaiming.latency_relief import BATCH_SECONDS_PER_VIOLATION_SECOND


def test_the_pod_that_causes_it_goes_and_the_cheaper_one_that_does_not_stays() -> None:
    """Both would last for 85 s more, 170 core seconds' worth. Without the loud one, 115 core seconds done, p falls from
    .9 to .1, and 151 of them are avoided; without the quiet one, 95 done, 19; without both 170, for 210."""
    scene = Scene().starts("loud", 0.0, 200.0, "loud").starts("quiet", 20.0, 180.0)
    assert scene.broken_from(100.0) == ["loud"]
    assert (
        "d/web was measured at 12 ms on n, its limit is 10 ms; without this pod 11 % of that risk" in scene.reasons[0]
    )


def test_a_node_whose_service_breaks_by_itself_is_left_alone() -> None:
    """Alone it risks .95 already: without the one job 95 of 100 breaks would stay."""
    scene = Scene()
    scene.starts("job", 0.0, 60.0)
    law = scene.scheduler.qos_forecaster
    assert isinstance(law, Law)
    law.alone = 0.9
    assert scene.broken_from(40.0) == []


@pytest.mark.parametrize(("ran", "goes"), [(66.0, True), (67.0, False)])
def test_a_pod_goes_only_for_more_seconds_over_the_limit_than_it_loses_work(ran: float, *, goes: bool) -> None:
    """Of 100 s; the break goes with it. Its work is ``ran`` core seconds then, and it would last for 100 - ran more,
    each worth two: 68 for 66, and 66 for 67."""
    assert BATCH_SECONDS_PER_VIOLATION_SECOND == 2.0
    scene = Scene().starts("job", 0.0, 100.0)
    assert scene.broken_from(ran - 15.0) == (["job"] if goes else [])


def test_what_helps_together_only_goes_together() -> None:
    """Five quiet ones: p .5. Each alone leaves 4/5 of it, all leave nothing."""
    scene = Scene()
    for name in "abcde":
        scene.starts(name, 90.0, 1000.0)
    assert sorted(scene.broken_from(100.0)) == ["a", "b", "c", "d", "e"]


def test_gratis_goes_before_batch_where_it_helps_at_all_however_long_it_ran() -> None:
    scene = Scene().starts("free", 0.0, 1000.0, cls=GRATIS).starts("paid", 90.0, 1000.0, "loud")
    assert scene.broken_from(100.0) == ["free"]


def test_the_next_round_comes_after_a_pause_and_another_measurement() -> None:
    scene = Scene().starts("free", 0.0, 1000.0, cls=GRATIS).starts("paid", 90.0, 1000.0, "loud")
    assert scene.broken_from(100.0) == ["free"]
    assert scene.measured(130.0, BROKEN) == []  # still on its way out
    scene.handle(131.0, PodDeleted("d/free", "u-free"))
    assert scene.measured(140.0, BROKEN) == []  # 30 s have not passed
    assert scene.handle(146.0) == []  # nothing was measured since
    assert scene.measured(147.0, BROKEN) == ["paid"]


def test_a_limit_that_holds_again_ends_the_episode() -> None:
    scene = Scene().starts("job", 0.0, 1000.0)
    scene.measured(110.0, BROKEN)
    assert scene.measured(120.0, HELD) == []
    assert scene.measured(126.0, BROKEN) == []
    assert scene.measured(140.0, BROKEN) == []
    assert scene.measured(141.0, BROKEN) == ["job"]


@pytest.mark.parametrize(
    "ended",
    [
        WorkloadDeleted("d/web"),
        PodUpserted(running_pod("web", "n", workload="d/web", ours=False)),  # a label says batch
    ],
)
def test_a_service_whose_promise_ends_while_it_is_over_its_limit_is_left_alone(ended: Event) -> None:
    scene = Scene().starts("job", 0.0, 1000.0)
    scene.measured(10.0, BROKEN)
    scene.measured(24.0, BROKEN)
    assert scene.handle(25.0, ended) == []


def test_who_must_not_be_disrupted_stays() -> None:
    scene = Scene().starts("must", 0.0, 1000.0, "loud", do_not_disrupt=True).starts("may", 90.0, 1000.0, "loud")
    assert scene.broken_from(100.0) == ["may"]


@pytest.mark.parametrize("policy", ["qpsm", "hierarchical"])
def test_other_policies_leave_it_be(policy: str) -> None:
    assert Scene(policy).starts("job", 0.0, 1000.0).broken_from(10.0) == []


def test_a_service_alone_on_its_node_is_left_alone() -> None:
    assert Scene().broken_from(10.0) == []


def test_an_old_measurement_moves_nobody() -> None:
    scene = Scene().starts("job", 0.0, 1000.0)
    scene.measured(10.0, BROKEN)
    assert scene.handle(10.0 + KNOBS.usage_stale_seconds + 1.0) == []

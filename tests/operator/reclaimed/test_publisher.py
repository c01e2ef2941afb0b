"""Reclaimed capacity on nodes: published when it is worth a patch, never wrong, and never in a loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reclaimed_scene import CPU, EMPTY, MEMORY, MI, Scene, merge, outlook

from cotide_operator.reclaimed import publisher as reclaimed_publisher
from cotide_operator.reclaimed.node_status import ANNOTATION, CONDITION


async def test_a_node_says_what_is_offered_how_far_to_trust_it_and_what_it_rests_on(scene: Scene) -> None:
    scene.emit(outlook())
    assert await scene.after() == [(4000, 4096 * MI)]
    (condition,) = scene.nodes["n1"]["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (CONDITION, "True", "Calibrated")
    assert condition["message"] == "covers 98.9 % of 200 slots"
    note = scene.nodes["n1"]["metadata"]["annotations"][ANNOTATION]
    assert note == "online peak 3600m cpu, 1024Mi memory; p99 covers 98.9%; error 2.1%; Calibrated"
    assert scene.counted("published") == 1.0
    value = scene.metrics.registry.get_sample_value
    assert value("cotide_reclaimed_published_cpu_millicores") == 4000.0
    assert value("cotide_reclaimed_published_memory_bytes") == 4096.0 * MI
    assert await scene.after(59.0) == [], "what is there is not written again"


async def test_without_an_outlook_or_a_size_nothing_is_written(scene: Scene) -> None:
    assert await scene.after() == []
    scene.held["n1"] = None  # the engine does not know what the node has
    scene.emit(outlook(), outlook(node="unknown"))
    assert await scene.after() == []
    scene.held["n1"] = EMPTY
    scene.show("n1")
    assert await scene.after() == [(4000, 4096 * MI)]


async def test_small_changes_wait_until_they_add_up_to_a_twentieth_of_the_node(scene: Scene) -> None:
    scene.emit(outlook())
    await scene.after()
    for millicores in (4399, 3601):  # 8000 x 0.05 = 400
        scene.emit(outlook(millicores))
        assert await scene.after(60.0) == []
    scene.emit(outlook(4400))
    assert await scene.after(60.0) == [(4400, 4096 * MI)]
    scene.emit(outlook(4400, 4506 * MI))  # 8192 x 0.05 = 409.6 MiB
    assert await scene.after(60.0) == [(4400, 4506 * MI)]


async def test_a_node_is_patched_once_a_minute_and_then_with_the_latest_value(scene: Scene) -> None:
    scene.emit(outlook())
    await scene.after()
    for second, millicores in ((10.0, 6000), (20.0, 2000), (29.0, 7000)):
        scene.emit(outlook(millicores))
        assert await scene.after(second) == []
    assert await scene.after(0.9) == []
    assert await scene.after(0.1) == [(7000, 4096 * MI)], "60 s after the first, nobody asks again"


async def test_room_that_pods_in_use_leave_no_more_is_taken_back_at_once(scene: Scene) -> None:
    scene.emit(outlook())
    await scene.after()
    scene.held["n1"] = replace(EMPTY, reclaimed=(3990, 0))
    # 10 are shown as free beside 3990 in use; 3989 are right. A small change, yet another pod could go there.
    scene.emit(outlook(3989))
    assert await scene.after(reclaimed_publisher.AT_ONCE_SECONDS) == [(3990, 4096 * MI)]
    scene.emit(outlook(3600))
    assert await scene.after(60.0) == [], "nobody gets in as it is"


async def test_the_amount_falls_with_the_pods_that_hold_it_and_not_below_them(scene: Scene) -> None:
    scene.held["n1"] = replace(EMPTY, reclaimed=(3000, 1024 * MI))
    scene.emit(outlook())
    await scene.after()
    # A kubelet that restarts would reject pods for which there is no room: 1000 and 512 Mi wait for them to end.
    scene.emit(outlook(1000, 512 * MI))
    assert await scene.after(60.0) == [(3000, 1024 * MI)]
    scene.held["n1"] = replace(EMPTY, reclaimed=(500, 256 * MI))
    scene.emit(outlook(1000, 512 * MI))
    assert await scene.after(60.0) == [(1000, 512 * MI)]


async def test_turned_off_it_takes_an_amount_away_when_the_last_pod_that_holds_some_has_ended(scene: Scene) -> None:
    scene.held["n1"] = replace(EMPTY, reclaimed=(500, 256 * MI))
    scene.emit(outlook())
    await scene.after()
    scene.start(publish=False)
    assert await scene.after(3600.0) == []
    scene.held["n1"] = EMPTY
    scene.show("n1")
    assert await scene.after() == [(0, 0)]


async def test_lost_trust_is_told_at_once_and_regained_trust_in_turn_each_with_an_event(scene: Scene) -> None:
    scene.emit(outlook())
    await scene.after()
    assert scene.events == [], "the first word is no change"
    fallen = outlook(2000, trusted=False, reason="CoverageTooLow", message="p99 covered 91.0 % of 100 slots")
    scene.emit(fallen)
    assert await scene.after(5.0) == [(2000, 4096 * MI)]
    assert scene.events == [("n1", "u1", False, "p99 covered 91.0 % of 100 slots")]
    changed = scene.nodes["n1"]["status"]["conditions"][0]["lastTransitionTime"]
    scene.emit(replace(fallen, reason="StaleFeed"))
    assert await scene.after(60.0) == [(2000, 4096 * MI)], "another reason is worth a patch"
    assert scene.nodes["n1"]["status"]["conditions"][0]["lastTransitionTime"] == changed, "though no change of trust"
    scene.emit(outlook())
    assert await scene.after(5.0) == []
    assert await scene.after(55.0) == [(4000, 4096 * MI)]
    assert [event[2] for event in scene.events] == [False, True]


async def test_a_node_without_a_forecast_yet_has_lost_no_trust_and_regains_none(scene: Scene) -> None:
    none_yet = outlook(2000, trusted=False, reason="NoForecast")
    for one in (none_yet, outlook(), none_yet, outlook()):  # an operator that starts, and starts again
        scene.emit(one)
        await scene.after(60.0)
    assert len(scene.patches) == 4
    assert scene.events == []
    # A feed that dies: the forecast runs out, then the usage is stale; and back the same way.
    for one in (none_yet, replace(none_yet, reason="StaleFeed"), none_yet, outlook()):
        scene.emit(one)
        await scene.after(60.0)
    assert [event[2] for event in scene.events] == [False, True]


async def test_a_restart_in_a_fall_tells_when_trust_is_back(scene: Scene) -> None:
    scene.emit(outlook(2000, trusted=False, reason="StaleFeed"))
    await scene.after()
    scene.start()
    for one in (outlook(2000, trusted=False, reason="NoForecast"), outlook()):
        scene.emit(one)
        await scene.after(60.0)
    assert [event[2] for event in scene.events] == [True]


async def test_trust_that_flaps_costs_two_patches_a_minute_at_most(scene: Scene) -> None:
    for second in range(600):
        scene.emit(outlook(trusted=second % 2 == 0))
        await scene.after(1.0)
    assert len(scene.patches) <= 20


async def test_a_restarted_operator_writes_nothing_that_is_there_and_remembers_whether_it_was_trusted(
    scene: Scene,
) -> None:
    scene.emit(outlook())
    await scene.after()
    scene.start()
    scene.emit(outlook(4100))
    assert await scene.after() == []
    scene.emit(outlook(2000, trusted=False, reason="StaleFeed"))
    assert await scene.after() == [(2000, 4096 * MI)]
    assert [event[2] for event in scene.events] == [False], "the condition on the node told what was before"


async def test_amounts_that_a_server_writes_in_another_form_are_the_same_amounts(scene: Scene) -> None:
    scene.emit(outlook())
    await scene.after()
    for part in ("capacity", "allocatable"):
        scene.nodes["n1"]["status"][part] |= {CPU: "4k", MEMORY: "4Gi"}
    scene.show("n1")
    assert await scene.after(60.0) == []


async def test_a_node_that_registers_anew_gets_its_amounts_again_without_waiting_for_its_turn(scene: Scene) -> None:
    scene.emit(outlook())
    await scene.after()
    scene.unregister("n1")
    assert await scene.after(1.0) == []
    assert scene.metrics.registry.get_sample_value("cotide_reclaimed_published_cpu_millicores") == 0.0
    scene.register("n1", uid="u2")
    assert await scene.after(1.0) == [(4000, 4096 * MI)]


async def test_a_node_that_was_replaced_behind_our_back_does_not_wait_for_the_turn_of_the_old_one(scene: Scene) -> None:
    scene.emit(outlook())
    await scene.after()
    scene.register("n1", uid="u2")  # a watch that broke off shows the new one only
    assert await scene.after(1.0) == [(4000, 4096 * MI)]


async def test_capacity_and_allocatable_that_differ_are_made_equal(scene: Scene) -> None:
    scene.emit(outlook())
    await scene.after()
    scene.nodes["n1"]["status"]["capacity"][CPU] = "3999"
    scene.show("n1")
    assert await scene.after(60.0) == [(4000, 4096 * MI)]


@pytest.mark.parametrize("amount", ["0", None, "plenty"])
async def test_a_kubelet_that_takes_the_amounts_away_gets_them_again_but_starts_no_loop(
    scene: Scene, amount: str | None
) -> None:
    scene.emit(outlook())
    await scene.after()
    for _ in range(300):
        for part in ("capacity", "allocatable"):
            merge(scene.nodes["n1"]["status"][part], {CPU: amount, MEMORY: amount})
        scene.show("n1")
        await scene.after(1.0)
    assert len(scene.patches) == 6, "one at first, and one a minute"


async def test_somebody_who_always_offers_more_is_answered_every_five_seconds_only(scene: Scene) -> None:
    scene.emit(outlook(0, 0))
    await scene.after()
    for _ in range(100):
        merge(scene.nodes["n1"]["status"]["allocatable"], {CPU: "8000"})
        scene.show("n1")
        await scene.after(1.0)
    assert len(scene.patches) == 1 + 100 / reclaimed_publisher.AT_ONCE_SECONDS


async def test_turned_off_it_takes_nothing_from_a_node_before_the_engine_knows_who_holds_some(scene: Scene) -> None:
    scene.emit(outlook())
    await scene.after()
    scene.held["n1"] = None  # an operator that has just started
    scene.start(publish=False)
    assert await scene.after() == []
    scene.held["n1"] = replace(EMPTY, reclaimed=(500, 256 * MI))
    assert await scene.after(60.0) == []
    scene.held["n1"] = EMPTY
    scene.show("n1")
    assert await scene.after() == [(0, 0)]


async def test_a_node_that_the_engine_did_not_know_yet_is_looked_at_again_by_itself(scene: Scene) -> None:
    scene.held["n1"] = None
    scene.emit(outlook())
    assert await scene.after() == []
    scene.held["n1"] = EMPTY
    assert await scene.after(reclaimed_publisher.UNKNOWN_SECONDS) == [(4000, 4096 * MI)]

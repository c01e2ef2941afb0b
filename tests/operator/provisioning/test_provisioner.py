"""The controller of capacity: what it wants, what it leaves alone, and what stays when a plan can't be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_objects import running_pod
from manifests import pod_manifest, pod_object
from provisioner_scene import LABEL, ORIGIN, Scene

from cotide_core.classes import WorkloadClass
from cotide_core.consolidation.removal.watching import Mark
from cotide_core.errors import InputError
from cotide_core.provisioning.node_orders import Action, Answer, OrderBook
from cotide_operator.provisioning import controller
from cotide_operator.provisioning.live_plan import planned


async def test_machines_are_ordered_for_what_is_missing_and_no_more() -> None:
    scene = Scene()
    scene.has("n")
    scene.runs(6)  # six cores and a fifth: two machines of four
    await scene.look(4)
    assert scene.asks() == [(Action.START, "capacity-a-1")]


async def test_a_pod_that_waits_beside_parts_that_are_each_too_small_has_a_machine_ordered_once() -> None:
    scene = Scene()
    scene.has("n", "m")
    scene.runs(2)
    scene.runs(2, "m")
    wide = running_pod("wide", "n", cls=WorkloadClass.ONLINE)._replace(node=None, requests=(("cpu", 2500),))
    scene.pods[wide.key] = wide
    scene.cache.apply("pods", "ADDED", pod_object("wide", namespace="d"))
    await scene.look(3)  # two cores are free on each, and eight would do for six and a half and a fifth
    assert scene.asks() == [(Action.START, "capacity-a-1")]
    assert scene.wanted("pods") + scene.wanted("kept") == 3.0


async def test_what_is_wanted_of_a_type_that_rests_after_a_failed_boot_is_still_shown() -> None:
    scene = Scene()
    scene.answer = Answer.FAILED
    scene.has("n")
    scene.runs(6)  # two machines of four: one is there, one more is asked for and fails
    await scene.look()
    assert (scene.wanted("pods"), scene.wanted("resting")) == (2.0, 0.0)
    await scene.look(2)
    assert (scene.wanted("pods"), scene.wanted("resting")) == (1.0, 1.0)
    assert scene.asks() == [(Action.START, "capacity-a-1")], "it rests for two minutes, and one has passed"


async def test_of_a_type_that_rests_no_more_is_shown_than_there_are_machines_and_than_others_leave() -> None:
    scene = Scene(count=3)
    scene.answer = Answer.FAILED
    scene.runs(99)
    scene.pods |= {key: pod._replace(node=None) for key, pod in scene.pods.items()}
    await scene.look(3)
    assert (scene.wanted("pods"), scene.wanted("resting")) == (0.0, 3.0)


async def test_a_freed_node_is_given_back_before_a_machine_is_started() -> None:
    scene = Scene()
    scene.has("n", free=Mark.FREED)
    scene.runs(6)
    await scene.look(3)
    assert ("give back", "free") in scene.frees.did
    assert scene.asked == []


async def test_a_node_that_is_being_drained_is_given_back_too_when_it_is_wanted() -> None:
    scene = Scene()
    scene.has("n", going=Mark.DRAINING)
    scene.runs(6)
    await scene.look(2)
    assert ("give back", "going") in scene.frees.did
    assert scene.asked == []


async def test_a_free_node_is_handed_over_once_it_is_settled_and_not_wanted() -> None:
    scene = Scene()
    scene.has("n", free=Mark.FREED)
    scene.runs(1)
    scene.frees.since = ORIGIN + 300.0
    await scene.look()
    scene.clock.wall = scene.frees.since + controller.SETTLED_SECONDS - 1.0
    await scene.provisioner.look()
    assert scene.frees.did == [], "a binding may have been on its way"
    scene.clock.wall = scene.frees.since + controller.SETTLED_SECONDS
    await scene.provisioner.look()
    assert scene.frees.did == [("hand over", "free")]


async def test_a_machine_is_switched_off_only_when_the_server_says_that_no_pod_is_on_it() -> None:
    scene = Scene()
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(1)
    daemon = {
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]
    }
    scene.listed = [pod_manifest("late", namespace="d", uid="l")]
    await scene.look(4)
    assert scene.asked == []
    assert scene.instructions.count("StopHeldUp") == 1, "once a minute, not at each look"
    scene.listed = [pod_manifest("own", namespace="d", uid="o", **daemon)]
    await scene.look()
    assert scene.asks() == [(Action.STOP, "gone")], "each node has its own of a DaemonSet"
    assert scene.asked[0].uid == scene.cache.nodes["gone"].metadata.uid != "", "its next life is stopped anew"


async def test_nothing_may_go_before_there_is_a_plan_and_then_what_it_can_do_without() -> None:
    scene = Scene()
    scene.has("n", "m", "o")
    scene.runs(1)
    assert dict(scene.provisioner.allowed().left) == {"a": 0}
    await scene.look()
    assert dict(scene.provisioner.allowed().left) == {"a": 2}
    assert scene.provisioner.allowed().label == LABEL


async def test_what_is_always_on_stays_on() -> None:
    scene = Scene(minimumOn=2)
    scene.has("n", "m", "o")
    scene.runs(1)
    await scene.look()
    assert dict(scene.provisioner.allowed().left) == {"a": 1}


async def test_no_more_machines_are_ordered_than_there_are_for_what_is_always_on() -> None:
    """Of two that are to be on a person holds one: there is no third."""
    scene = Scene(count=2, minimumOn=2)
    scene.has("n", persons=Mark.NONE)
    scene.runs(1)
    await scene.look(2)
    assert scene.asks() == []


async def test_where_a_plan_fails_the_last_good_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.has("n")
    scene.runs(6)
    await scene.look()

    def refused(*_: Any) -> Any:
        raise InputError("a price is missing or not a number", field="price")

    monkeypatch.setattr(controller, "planned", refused)
    await scene.look(2)
    assert scene.asks() == [(Action.START, "capacity-a-1")], "two are wanted still"
    text = scene.metrics.text().decode()
    assert 'cotide_provisioning_plans_total{result="refused"} 2.0' in text
    assert 'cotide_provisioning_plans_total{result="planned"} 1.0' in text


async def test_a_plan_is_made_with_the_prices_of_its_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file, seen = tmp_path / "prices.csv", []
    # The clock stands 100 s after the first row, and steps take 300 s.
    file.write_text("time,price_per_kilowatt_hour\n2001-09-09T01:46:40Z,0.2\n2001-09-09T01:56:40Z,0.4\n")
    monkeypatch.setattr(controller, "planned", lambda _, one: seen.append(one) or planned(_, one))
    scene = Scene("advice", {"energyPrices": {"file": str(file)}, "horizonSteps": 4})
    scene.has("n")
    scene.runs(1)
    await scene.provisioner._prices.read()
    await scene.look()
    assert seen[0].price.tolist() == [0.2, 0.2, 0.4, 0.4]


async def test_an_empty_cluster_is_told_in_one_sentence_and_orders_nothing(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    await scene.look(3)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "the demand is unknown" in said
    assert scene.asked == []


async def test_more_demand_than_machines_orders_all_there_are() -> None:
    scene = Scene(count=3)
    scene.has("n")
    for node in ("n", "m", "o"):
        scene.runs(99, node)
    scene.pods |= {key: pod._replace(node=None) for key, pod in scene.pods.items()}
    await scene.look(3)
    assert sorted(scene.asks()) == [(Action.START, "capacity-a-1"), (Action.START, "capacity-a-2")]


async def test_a_node_that_a_person_has_cordoned_is_nobodys_to_stop_and_its_pods_are_his() -> None:
    scene = Scene()
    scene.has("n", "m", mine=Mark.NONE)
    scene.runs(1)
    scene.runs(4, "mine")
    await scene.look(2)
    assert dict(scene.provisioner.allowed().left) == {"a": 1}, "one of n and m; five pods would want both"
    assert (scene.asked, scene.frees.did) == ([], [])


async def test_advice_and_a_dry_run_write_and_send_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for mode in ("advice", "dryRun"):
        scene = Scene(mode)
        scene.has("n", free=Mark.FREED, gone=Mark.STOPPING)
        scene.runs(60)
        await scene.look(3)
        assert (scene.asked, scene.frees.did, scene.book) == ([], [], OrderBook())
        text = scene.metrics.text().decode()
        assert 'cotide_provisioning_wanted_nodes{type="a",why="pods"} 8.0' in text, "one of nine is being switched off"
    assert "would send: start capacity-a-1" in caplog.text


async def test_energy_money_and_carbon_are_those_of_the_machines_that_are_on() -> None:
    scene = Scene("advice", idleWatts=100, peakWatts=200, hourlyCost=3.6)
    scene.settings = scene.settings.model_copy(update={"carbon_grams_per_kilowatt_hour": 360.0})
    scene.provisioner._accounts._settings = scene.provisioner._prices._settings = scene.settings
    scene.has("n", "m")
    scene.runs(1)
    await scene.look()
    await scene.provisioner.look()
    text = scene.metrics.text().decode()
    # Two idle machines of 100 W for 60 s: 12 kJ, a 300th of a kWh at 0.1, and rent of 0.06 each.
    assert 'cotide_provisioning_energy_joules_total{type="a"} 12000.0' in text
    assert scene.metrics.provisioning_cost.labels("a")._value.get() == pytest.approx(0.12 + 0.1 / 300)
    assert scene.metrics.provisioning_carbon.labels("a")._value.get() == pytest.approx(360.0 / 300)


async def test_what_was_foreseen_is_scored_when_its_time_has_come() -> None:
    scene = Scene()
    scene.has("n", "m")
    scene.runs(3)
    await scene.look(8)  # every minute; foreseen for the end of a step of five
    text = scene.metrics.text().decode()
    assert 'cotide_provisioning_forecasts_total{outcome="below_p50"} 3.0' in text


async def test_what_can_not_be_planned_is_told_as_what_it_is_with_and_without_a_plan_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    await scene.look()
    assert "there is no plan of capacity yet: " in caplog.text
    scene.has("n")
    scene.runs(1)
    await scene.look()
    scene.pods.clear()
    await scene.look()
    assert "the last plan of capacity stays: " in caplog.text

"""Reclaimed capacity on nodes: published when it is worth a patch, never wrong, and never in a loop."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cotide_core.errors import ClusterError
from cotide_core.state.reclaimed import Holdings
from cotide_kube.answers import ApiError
from cotide_kube.objects import NodeObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.host_load_settings import ReclaimedSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed import node_patch_queue as node_turns
from cotide_operator.reclaimed import publisher as reclaimed_publisher
from cotide_operator.reclaimed.node_outlook import NodeOutlook, Outlooks
from cotide_operator.reclaimed.node_patch_queue import NodePatchQueue
from cotide_operator.reclaimed.node_status import ANNOTATION, CONDITION, REFRESH_SECONDS, Urgency
from cotide_operator.reclaimed.publisher import ReclaimedPublisher

MI = 2**20
CPU, MEMORY = "cotide.dev/reclaimed-cpu", "cotide.dev/reclaimed-memory"
EMPTY = Holdings((8000, 8192 * MI), (0, 0), (0, 0), (0, 0))
WALL = 1_790_000_000.0


def outlook(millicores: float = 4000, memory: float = 4096 * MI, **more: Any) -> NodeOutlook:
    given = NodeOutlook(
        node="n1",
        until_seconds=300.0,
        online_millicores=3600.0,
        online_memory_bytes=float(1024 * MI),
        offered_millicores=millicores,  # type: ignore[arg-type]  # some tests give what can't be
        offered_memory_bytes=memory,  # type: ignore[arg-type]
        trusted=True,
        reason="Calibrated",
        message="covers 98.9 % of 200 slots",
        coverage_p99=0.989,
        absolute_error_share=0.021,
    )
    return replace(given, **more)


class Scene:
    """A publisher, its clock, and an API server in a few lines: what it takes, it shows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.monotonic = 1000.0
        for module in (reclaimed_publisher.time, node_turns.time):
            monkeypatch.setattr(module, "monotonic", lambda: self.monotonic)
            monkeypatch.setattr(module, "time", lambda: WALL + self.monotonic)
        self.nodes: dict[str, dict[str, Any]] = {}
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.events: list[tuple[str, str, bool, str]] = []
        self.refusal: ClusterError | None = None
        self.tries = 0
        self.clock_seconds = 0.0
        self.speed = 1.0
        self.watching = True
        self.held: dict[str, Holdings | None] = {"n1": EMPTY}
        self.settings = ReclaimedSettings(patches_per_second=1e9, **settings)
        self.start()
        self.register("n1")

    def start(self, *, publish: bool = True) -> None:
        """Start a publisher that remembers nothing, beside a mirror that lists everything."""
        self.mirror, self.outlooks, self.telemetry = ObjectCache(), Outlooks(), Metrics()
        stand_in: Any = self  # for client, clock and recorder
        self.publisher = ReclaimedPublisher(
            stand_in,
            self.mirror,
            self.outlooks,
            stand_in,
            holdings_of=self.held.get,
            settings=self.settings,
            publish=publish,
            slot_seconds=300.0,
            recorder=stand_in,
            telemetry=self.telemetry,
            seed=1,
        )
        for name in self.nodes:
            self.show(name)

    def now(self) -> float:
        return self.clock_seconds

    def forecast_trust(self, node: str, uid: str, *, trusted: bool, message: str) -> None:
        self.events.append((node, uid, trusted, message))

    async def patch(self, path: str, patch: dict[str, Any], kind: str) -> None:
        assert kind == "strategic"
        self.tries += 1
        if self.refusal is not None:
            raise self.refusal
        name = path.split("/")[4]
        assert path == f"/api/v1/nodes/{name}/status"
        node = self.nodes[name]
        assert patch["metadata"]["uid"] == node["metadata"]["uid"]
        self.patches.append((name, patch))
        merge(node["metadata"].setdefault("annotations", {}), patch["metadata"]["annotations"])
        for part in ("capacity", "allocatable"):
            merge(node["status"][part], patch["status"][part])
        (condition,) = patch["status"]["conditions"]
        others = [one for one in node["status"]["conditions"] if one["type"] != condition["type"]]
        node["status"]["conditions"] = others + ([condition] if "$patch" not in condition else [])
        if self.watching:
            self.show(name)

    def register(self, name: str, uid: str = "u1", **status: Any) -> None:
        amounts = {"cpu": "8", "memory": "8Gi"}
        given = {"capacity": {**amounts}, "allocatable": {**amounts}, "conditions": [], **status}
        self.nodes[name] = {"metadata": {"name": name, "uid": uid}, "status": given}
        self.show(name)

    def show(self, name: str) -> None:
        self.mirror.apply("nodes", "MODIFIED", msgspec.convert(self.nodes[name], NodeObject))

    def unregister(self, name: str) -> None:
        self.mirror.apply("nodes", "DELETED", msgspec.convert(self.nodes.pop(name), NodeObject))

    def tell(self, *outlooks: NodeOutlook) -> None:
        self.outlooks.put(outlooks)

    async def after(self, seconds: float = 0.0) -> list[tuple[int, int]]:
        """Let time pass, look as the publisher does, and return what was published meanwhile."""
        before = len(self.patches)
        self.monotonic += seconds
        self.clock_seconds += seconds
        self.publisher.look()
        turns = self.publisher._turns
        while len(turns):
            name = await turns.take()
            await self.publisher._patch(name)
            turns.done(name)
        self.publisher.look()
        made = [patch["status"]["allocatable"] for _, patch in self.patches[before:]]
        assert all(patch["status"]["capacity"] == patch["status"]["allocatable"] for _, patch in self.patches)
        return [(int(one[CPU] or 0), int(one[MEMORY] or 0)) for one in made]

    def counted(self, result: str) -> float | None:
        return self.telemetry.registry.get_sample_value("cotide_reclaimed_patches_total", {"result": result})


def merge(into: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if value is None:
            into.pop(key, None)
        else:
            into[key] = value


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def test_a_node_says_what_is_offered_how_far_to_trust_it_and_what_it_rests_on(scene: Scene) -> None:
    scene.tell(outlook())
    assert await scene.after() == [(4000, 4096 * MI)]
    (condition,) = scene.nodes["n1"]["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (CONDITION, "True", "Calibrated")
    assert condition["message"] == "covers 98.9 % of 200 slots"
    note = scene.nodes["n1"]["metadata"]["annotations"][ANNOTATION]
    assert note == "online peak 3600m cpu, 1024Mi memory; p99 covers 98.9%; error 2.1%; Calibrated"
    assert scene.counted("published") == 1.0
    value = scene.telemetry.registry.get_sample_value
    assert value("cotide_reclaimed_published_cpu_millicores") == 4000.0
    assert value("cotide_reclaimed_published_memory_bytes") == 4096.0 * MI
    assert await scene.after(59.0) == [], "what is there is not written again"


async def test_without_an_outlook_or_a_size_nothing_is_written(scene: Scene) -> None:
    assert await scene.after() == []
    scene.held["n1"] = None  # the engine does not know what the node has
    scene.tell(outlook(), outlook(node="unknown"))
    assert await scene.after() == []
    scene.held["n1"] = EMPTY
    scene.show("n1")
    assert await scene.after() == [(4000, 4096 * MI)]


async def test_small_changes_wait_until_they_add_up_to_a_twentieth_of_the_node(scene: Scene) -> None:
    scene.tell(outlook())
    await scene.after()
    for millicores in (4399, 3601):  # 8000 x 0.05 = 400
        scene.tell(outlook(millicores))
        assert await scene.after(60.0) == []
    scene.tell(outlook(4400))
    assert await scene.after(60.0) == [(4400, 4096 * MI)]
    scene.tell(outlook(4400, 4506 * MI))  # 8192 x 0.05 = 409.6 MiB
    assert await scene.after(60.0) == [(4400, 4506 * MI)]


async def test_a_node_is_patched_once_a_minute_and_then_with_the_latest_value(scene: Scene) -> None:
    scene.tell(outlook())
    await scene.after()
    for second, millicores in ((10.0, 6000), (20.0, 2000), (29.0, 7000)):
        scene.tell(outlook(millicores))
        assert await scene.after(second) == []
    assert await scene.after(0.9) == []
    assert await scene.after(0.1) == [(7000, 4096 * MI)], "60 s after the first, nobody asks again"


async def test_room_that_pods_in_use_leave_no_more_is_taken_back_at_once(scene: Scene) -> None:
    scene.tell(outlook())
    await scene.after()
    scene.held["n1"] = replace(EMPTY, reclaimed=(3990, 0))
    # 10 are shown as free beside 3990 in use; 3989 are right. A small change, yet another pod could go there.
    scene.tell(outlook(3989))
    assert await scene.after(reclaimed_publisher.AT_ONCE_SECONDS) == [(3990, 4096 * MI)]
    scene.tell(outlook(3600))
    assert await scene.after(60.0) == [], "nobody gets in as it is"


async def test_the_amount_falls_with_the_pods_that_hold_it_and_not_below_them(scene: Scene) -> None:
    scene.held["n1"] = replace(EMPTY, reclaimed=(3000, 1024 * MI))
    scene.tell(outlook())
    await scene.after()
    # A kubelet that restarts would reject pods for which there is no room: 1000 and 512 Mi wait for them to end.
    scene.tell(outlook(1000, 512 * MI))
    assert await scene.after(60.0) == [(3000, 1024 * MI)]
    scene.held["n1"] = replace(EMPTY, reclaimed=(500, 256 * MI))
    scene.tell(outlook(1000, 512 * MI))
    assert await scene.after(60.0) == [(1000, 512 * MI)]


async def test_turned_off_it_takes_an_amount_away_when_the_last_pod_that_holds_some_has_ended(scene: Scene) -> None:
    scene.held["n1"] = replace(EMPTY, reclaimed=(500, 256 * MI))
    scene.tell(outlook())
    await scene.after()
    scene.start(publish=False)
    assert await scene.after(3600.0) == []
    scene.held["n1"] = EMPTY
    scene.show("n1")
    assert await scene.after() == [(0, 0)]


async def test_lost_trust_is_told_at_once_and_regained_trust_in_turn_each_with_an_event(scene: Scene) -> None:
    scene.tell(outlook())
    await scene.after()
    assert scene.events == [], "the first word is no change"
    fallen = outlook(2000, trusted=False, reason="CoverageTooLow", message="p99 covered 91.0 % of 100 slots")
    scene.tell(fallen)
    assert await scene.after(5.0) == [(2000, 4096 * MI)]
    assert scene.events == [("n1", "u1", False, "p99 covered 91.0 % of 100 slots")]
    changed = scene.nodes["n1"]["status"]["conditions"][0]["lastTransitionTime"]
    scene.tell(replace(fallen, reason="StaleFeed"))
    assert await scene.after(60.0) == [(2000, 4096 * MI)], "another reason is worth a patch"
    assert scene.nodes["n1"]["status"]["conditions"][0]["lastTransitionTime"] == changed, "though no change of trust"
    scene.tell(outlook())
    assert await scene.after(5.0) == []
    assert await scene.after(55.0) == [(4000, 4096 * MI)]
    assert [event[2] for event in scene.events] == [False, True]


async def test_a_node_without_a_forecast_yet_has_lost_no_trust_and_regains_none(scene: Scene) -> None:
    none_yet = outlook(2000, trusted=False, reason="NoForecast")
    for one in (none_yet, outlook(), none_yet, outlook()):  # an operator that starts, and starts again
        scene.tell(one)
        await scene.after(60.0)
    assert len(scene.patches) == 4
    assert scene.events == []
    # A feed that dies: the forecast runs out, then the usage is stale; and back the same way.
    for one in (none_yet, replace(none_yet, reason="StaleFeed"), none_yet, outlook()):
        scene.tell(one)
        await scene.after(60.0)
    assert [event[2] for event in scene.events] == [False, True]


async def test_a_restart_in_a_fall_tells_when_trust_is_back(scene: Scene) -> None:
    scene.tell(outlook(2000, trusted=False, reason="StaleFeed"))
    await scene.after()
    scene.start()
    for one in (outlook(2000, trusted=False, reason="NoForecast"), outlook()):
        scene.tell(one)
        await scene.after(60.0)
    assert [event[2] for event in scene.events] == [True]


async def test_trust_that_flaps_costs_two_patches_a_minute_at_most(scene: Scene) -> None:
    for second in range(600):
        scene.tell(outlook(trusted=second % 2 == 0))
        await scene.after(1.0)
    assert len(scene.patches) <= 20


async def test_a_restarted_operator_writes_nothing_that_is_there_and_remembers_whether_it_was_trusted(
    scene: Scene,
) -> None:
    scene.tell(outlook())
    await scene.after()
    scene.start()
    scene.tell(outlook(4100))
    assert await scene.after() == []
    scene.tell(outlook(2000, trusted=False, reason="StaleFeed"))
    assert await scene.after() == [(2000, 4096 * MI)]
    assert [event[2] for event in scene.events] == [False], "the condition on the node told what was before"


async def test_amounts_that_a_server_writes_in_another_form_are_the_same_amounts(scene: Scene) -> None:
    scene.tell(outlook())
    await scene.after()
    for part in ("capacity", "allocatable"):
        scene.nodes["n1"]["status"][part] |= {CPU: "4k", MEMORY: "4Gi"}
    scene.show("n1")
    assert await scene.after(60.0) == []


async def test_a_node_that_registers_anew_gets_its_amounts_again_without_waiting_for_its_turn(scene: Scene) -> None:
    scene.tell(outlook())
    await scene.after()
    scene.unregister("n1")
    assert await scene.after(1.0) == []
    assert scene.telemetry.registry.get_sample_value("cotide_reclaimed_published_cpu_millicores") == 0.0
    scene.register("n1", uid="u2")
    assert await scene.after(1.0) == [(4000, 4096 * MI)]


async def test_a_node_that_was_replaced_behind_our_back_does_not_wait_for_the_turn_of_the_old_one(scene: Scene) -> None:
    scene.tell(outlook())
    await scene.after()
    scene.register("n1", uid="u2")  # a watch that broke off shows the new one only
    assert await scene.after(1.0) == [(4000, 4096 * MI)]


async def test_capacity_and_allocatable_that_differ_are_made_equal(scene: Scene) -> None:
    scene.tell(outlook())
    await scene.after()
    scene.nodes["n1"]["status"]["capacity"][CPU] = "3999"
    scene.show("n1")
    assert await scene.after(60.0) == [(4000, 4096 * MI)]


@pytest.mark.parametrize("amount", ["0", None, "plenty"])
async def test_a_kubelet_that_takes_the_amounts_away_gets_them_again_but_starts_no_loop(
    scene: Scene, amount: str | None
) -> None:
    scene.tell(outlook())
    await scene.after()
    for _ in range(300):
        for part in ("capacity", "allocatable"):
            merge(scene.nodes["n1"]["status"][part], {CPU: amount, MEMORY: amount})
        scene.show("n1")
        await scene.after(1.0)
    assert len(scene.patches) == 6, "one at first, and one a minute"


async def test_somebody_who_always_offers_more_is_answered_every_five_seconds_only(scene: Scene) -> None:
    scene.tell(outlook(0, 0))
    await scene.after()
    for _ in range(100):
        merge(scene.nodes["n1"]["status"]["allocatable"], {CPU: "8000"})
        scene.show("n1")
        await scene.after(1.0)
    assert len(scene.patches) == 1 + 100 / reclaimed_publisher.AT_ONCE_SECONDS


FREE = (8000 - 3000, (8192 - 2048) * MI)
"""What is left beside the requests of the online pods below."""
IMPOSSIBLE = [
    ("not a number", {"offered_millicores": math.nan}),
    ("infinite", {"offered_memory_bytes": math.inf}),
    ("below zero", {"offered_millicores": -1}),
    ("a peak that is not a number", {"online_millicores": math.nan}),
    ("a peak below zero", {"online_memory_bytes": -1.0}),
]


@pytest.mark.parametrize("fields", [case[1] for case in IMPOSSIBLE], ids=[case[0] for case in IMPOSSIBLE])
async def test_an_outlook_that_can_not_be_falls_back_to_requests_never_to_zero(
    scene: Scene, fields: dict[str, Any]
) -> None:
    scene.held["n1"] = replace(EMPTY, online=(3000, 2048 * MI))
    scene.tell(outlook(**fields))
    assert await scene.after() == [FREE]
    condition = scene.nodes["n1"]["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "ImpossibleForecast")
    assert condition["message"] == "the forecast held a figure that can't be: what pods ask for counts instead"


async def test_a_hundredfold_offer_is_cut_to_what_is_physically_there(scene: Scene) -> None:
    scene.tell(outlook(400_000, 400_000 * MI))
    assert await scene.after() == [(8000, 8192 * MI)]


async def test_an_honest_zero_is_published_and_is_no_accident(scene: Scene) -> None:
    scene.tell(outlook(0, 0))
    assert await scene.after() == [(0, 0)]


async def test_an_outlook_that_is_long_over_falls_back_to_requests(scene: Scene) -> None:
    scene.held["n1"] = replace(EMPTY, online=(3000, 2048 * MI))
    scene.tell(outlook(7000))
    assert await scene.after() == [(7000, 4096 * MI)]
    assert await scene.after(599.0) == []  # it held for 300 s and gets another slot's grace
    assert await scene.after(2.0) == [FREE]
    assert scene.events[-1][3] == "no forecast came for a whole slot: what pods ask for counts instead"
    assert await scene.after(100.0) == []


async def test_fallen_back_a_node_offers_no_more_than_is_not_asked_for_by_now(scene: Scene) -> None:
    fallen = outlook(6000, 6000 * MI, trusted=False, reason="StaleFeed")
    scene.tell(fallen)
    await scene.after()
    scene.held["n1"] = replace(EMPTY, online=(5000, 0))  # an online pod came since
    scene.tell(fallen)
    assert await scene.after(60.0) == [(3000, 6000 * MI)]


async def test_what_plain_batch_pods_hold_is_not_offered_a_second_time(scene: Scene) -> None:
    scene.held["n1"] = replace(EMPTY, plain_batch=(1500, 5000 * MI))
    scene.tell(outlook())
    assert await scene.after() == [(2500, 0)]  # 4000 - 1500; 4096 - 5000 is nothing


REFUSALS = [
    ("gone", ApiError(404, "NotFound", "no such node")),
    ("gone", ApiError(409, "Conflict", "another uid")),
    ("refused", ApiError(422, "Invalid", "immutable")),
    ("refused", ApiError(429, "TooManyRequests", "later")),
    ("refused", ApiError(500, "InternalError", "etcd")),
    ("refused", ApiError(403, "Forbidden", "no right")),
    ("refused", ClusterError("does not answer")),
]


@pytest.mark.parametrize(("result", "refusal"), REFUSALS, ids=[str(case[1])[:3] for case in REFUSALS])
async def test_a_refused_patch_is_tried_again_ever_more_seldom_and_then_with_the_latest_value(
    scene: Scene, caplog: pytest.LogCaptureFixture, result: str, refusal: ClusterError
) -> None:
    scene.refusal = refusal
    with caplog.at_level(logging.WARNING):
        for second in range(1200):
            scene.tell(outlook(1000 + second, until_seconds=1e9))
            await scene.after(1.0)
    # Pauses of 2, 4, 8, ... 300 s, each drawn from its upper half: 8 tries in 5-9 minutes, then one in 150-300 s.
    assert 10 <= scene.tries <= 18
    assert scene.counted(result) == scene.tries
    assert len(caplog.records) == (0 if result == "gone" else pytest.approx(scene.tries, abs=7))
    scene.refusal = None
    assert await scene.after(300.0) == [(2199, 4096 * MI)]
    assert scene.patches[-1][1]["status"]["conditions"][0]["status"] == "True"


async def test_its_own_write_is_believed_until_the_watch_shows_something_newer(scene: Scene) -> None:
    scene.tell(outlook())
    scene.watching = False
    await scene.after()
    scene.tell(outlook(2000, trusted=False, reason="StaleFeed"))
    assert await scene.after(60.0) == [(2000, 4096 * MI)]
    for _ in range(10):
        assert await scene.after(10.0) == [], "the mirror still shows a node without amounts"
    assert len(scene.events) == 1


async def test_figures_are_refreshed_now_and_then_though_nothing_changed(scene: Scene) -> None:
    scene.tell(outlook(until_seconds=1e9))
    await scene.after()
    scene.tell(outlook(until_seconds=1e9, coverage_p99=0.97))
    assert await scene.after(REFRESH_SECONDS - 1.0) == []
    scene.tell(outlook(until_seconds=1e9, coverage_p99=0.97))
    assert await scene.after(1.0) == [(4000, 4096 * MI)]
    assert "p99 covers 97.0%" in scene.nodes["n1"]["metadata"]["annotations"][ANNOTATION]


async def test_a_heartbeat_from_the_future_does_not_stop_the_refresh(scene: Scene) -> None:
    scene.tell(outlook())
    await scene.after()
    scene.nodes["n1"]["status"]["conditions"][0]["lastHeartbeatTime"] = "2099-01-01T00:00:00Z"
    scene.show("n1")
    assert await scene.after(60.0) == [(4000, 4096 * MI)]


async def test_turned_off_it_takes_everything_away_once_and_touches_no_other_node(scene: Scene) -> None:
    scene.register("n2")
    scene.tell(outlook())
    await scene.after()
    scene.start(publish=False)
    assert await scene.after() == [(0, 0)]
    status = scene.nodes["n1"]["status"]
    assert (status["capacity"], status["conditions"]) == ({"cpu": "8", "memory": "8Gi"}, [])
    assert scene.nodes["n1"]["metadata"]["annotations"] == {}
    assert scene.counted("withdrawn") == 1.0
    assert await scene.after(3600.0) == []
    assert [name for name, _ in scene.patches] == ["n1", "n1"]


async def test_the_urgent_go_first_whatever_waited_before_them() -> None:
    turns = NodePatchQueue(1e9)
    turns.put("a", Urgency.DUE)
    turns.put("b", Urgency.DUE)
    turns.put("c", Urgency.AT_ONCE)
    turns.put("b", Urgency.AT_ONCE)
    turns.put("d", Urgency.DUE)
    turns.drop("d")
    assert [await turns.take() for _ in range(3)] == ["c", "b", "a"]
    assert turns.taken("a")
    turns.done("a")
    assert not turns.taken("a")


async def test_all_nodes_together_keep_to_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(node_turns.time, "monotonic", lambda: 5.0)
    monkeypatch.setattr(node_turns.asyncio, "sleep", sleep)
    turns = NodePatchQueue(10.0)
    for name in "abcd":
        turns.put(name, Urgency.DUE)
        await turns.take()
    assert slept == pytest.approx([0.1, 0.2, 0.3])

"""Patches that are refused, late, foreign or too many."""

from __future__ import annotations

import logging

import pytest
from reclaimed_scene import MI, Scene, outlook

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_operator.reclaimed import node_patch_queue as node_turns
from cotide_operator.reclaimed.node_patch_queue import NodePatchQueue
from cotide_operator.reclaimed.node_status import ANNOTATION, REFRESH_SECONDS, Urgency

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
            scene.emit(outlook(1000 + second, until_seconds=1e9))
            await scene.after(1.0)
    # Pauses of 2, 4, 8, ... 300 s, each drawn from its upper half: 8 tries in 5-9 minutes, then one in 150-300 s.
    assert 10 <= scene.tries <= 18
    assert scene.counted(result) == scene.tries
    assert len(caplog.records) == (0 if result == "gone" else pytest.approx(scene.tries, abs=7))
    scene.refusal = None
    assert await scene.after(300.0) == [(2199, 4096 * MI)]
    assert scene.patches[-1][1]["status"]["conditions"][0]["status"] == "True"


async def test_its_own_write_is_believed_until_the_watch_shows_something_newer(scene: Scene) -> None:
    scene.emit(outlook())
    scene.watching = False
    await scene.after()
    scene.emit(outlook(2000, trusted=False, reason="StaleFeed"))
    assert await scene.after(60.0) == [(2000, 4096 * MI)]
    for _ in range(10):
        assert await scene.after(10.0) == [], "the cache still shows a node without amounts"
    assert len(scene.events) == 1


async def test_figures_are_refreshed_now_and_then_though_nothing_changed(scene: Scene) -> None:
    scene.emit(outlook(until_seconds=1e9))
    await scene.after()
    scene.emit(outlook(until_seconds=1e9, coverage_p99=0.97))
    assert await scene.after(REFRESH_SECONDS - 1.0) == []
    scene.emit(outlook(until_seconds=1e9, coverage_p99=0.97))
    assert await scene.after(1.0) == [(4000, 4096 * MI)]
    assert "p99 covers 97.0%" in scene.nodes["n1"]["metadata"]["annotations"][ANNOTATION]


async def test_a_heartbeat_from_the_future_does_not_stop_the_refresh(scene: Scene) -> None:
    scene.emit(outlook())
    await scene.after()
    scene.nodes["n1"]["status"]["conditions"][0]["lastHeartbeatTime"] = "2099-01-01T00:00:00Z"
    scene.show("n1")
    assert await scene.after(60.0) == [(4000, 4096 * MI)]


async def test_turned_off_it_takes_everything_away_once_and_touches_no_other_node(scene: Scene) -> None:
    scene.register("n2")
    scene.emit(outlook())
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

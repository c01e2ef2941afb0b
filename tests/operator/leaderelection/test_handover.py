"""What a leader tells the next one of its bindings, and how long the next one waits for it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.instructions import Bind
from cotide_kube.answers import Answer, ApiError
from cotide_kube.objects import PodObject
from cotide_kube.reflector import BackupRestored
from cotide_kube.versions import order
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.leaderelection import handover as handover_module
from cotide_operator.leaderelection.handover import Handover
from cotide_operator.scheduling.binder import BindReport, Report


class Leader:
    """Stands for the election: remembers what was written on the lease."""

    def __init__(self, inherited: str = "", lease_seconds: float = 30.0) -> None:
        self.holding, self.inherited, self.lease_seconds = True, inherited, lease_seconds
        self.handed_over: str | None = None
        self.expires = False

    async def release(self, bound_up_to: str = "") -> None:
        self.handed_over, self.holding = bound_up_to, False

    def let_expire(self) -> None:
        self.expires, self.holding = True, False


class Api:
    """Stands for the client: shows pods by path, or refuses with a status."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any] | int] = {}
        self.asked: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        found = self.pods[path.rpartition("/")[2]]
        if isinstance(found, int):
            raise ApiError(found, "Reason", "message")
        return found


class Scene:
    def __init__(self) -> None:
        self.api, self.cache = Api(), ObjectCache()
        client: Any = self.api
        self.handover = Handover(client, self.cache)

    def sees(self, name: str, version: int, node: str = "", uid: str = "", change: str = "MODIFIED") -> None:
        metadata = {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": str(version)}
        spec = {"nodeName": node} if node else {}
        self.cache.apply("pods", change, msgspec.convert({"metadata": metadata, "spec": spec}, PodObject))
        self.cache.pods_version = str(version)

    def bound(self, name: str, *, bound: bool = True) -> Report:
        report = BindReport(Bind(f"ns/{name}", name, "n", "why"), Answer(201), bound, False, 0.0)
        self.handover.note(report)
        return report

    async def handed_over(self, unanswered: int = 0) -> str | None:
        """What is on the lease after the hand-over; None where it is left to expire."""
        leader: Any = Leader()
        await self.handover.hand_over(leader, unanswered)
        assert leader.expires == (leader.handed_over is None)
        handed_over: str | None = leader.handed_over
        return handed_over


def stored(name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version), **more}, "spec": {"nodeName": "n"}}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover_module, "SHOWN_SECONDS", 0.0)


async def test_who_bound_nothing_says_nothing() -> None:
    scene = Scene()
    scene.sees("a", 7, change="ADDED")
    assert await scene.handed_over() == ""


async def test_the_highest_version_of_a_pod_that_was_bound_counts_and_of_no_other() -> None:
    scene = Scene()
    for name in ("a", "b", "c"):
        scene.sees(name, 7, change="ADDED")
    scene.sees("a", 100, node="n")  # the watch was faster than the answer
    scene.bound("a")
    scene.bound("b")
    scene.sees("b", 99, node="n")
    scene.bound("c", bound=False)
    scene.sees("c", 101)
    scene.sees("other", 102, node="n")
    assert await scene.handed_over() == "100"  # as a number: as letters 99 would be more
    assert scene.api.asked == []


async def test_the_last_bindings_are_waited_for() -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.sees(name, 7, change="ADDED")
        scene.bound(name)
    telling = asyncio.create_task(scene.handed_over())
    await asyncio.sleep(0)
    scene.sees("a", 8, node="n")
    await asyncio.sleep(0)
    assert not telling.done()
    scene.sees("b", 9, node="n")
    assert await telling == "9"
    assert scene.api.asked == []


async def test_pods_that_are_gone_or_others_now_hold_nothing() -> None:
    scene = Scene()
    for name in ("gone", "other"):
        scene.sees(name, 7, change="ADDED")
        scene.bound(name)
    scene.sees("gone", 8, change="DELETED")
    scene.sees("other", 9, uid="another")
    scene.bound("never-seen")
    assert await scene.handed_over() == ""


@pytest.mark.usefixtures("impatient")
async def test_pods_that_the_watch_does_not_show_are_looked_at() -> None:
    scene = Scene()
    for name in ("late", "later", "gone", "other"):
        scene.sees(name, 7, change="ADDED")
        scene.bound(name)
    scene.api.pods = {
        "late": stored("late", 1000),
        "later": stored("later", 999),
        "gone": 404,
        "other": stored("other", 5000, uid="another"),
    }
    assert await scene.handed_over() == "1000"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("status", [403, 503])
async def test_a_lease_is_not_given_up_over_bindings_that_nobody_can_tell_of(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.sees(name, 7, change="ADDED")
        scene.bound(name)
    scene.api.pods = {"a": stored("a", 8), "b": status}
    assert await scene.handed_over() is None
    assert "could not know of 1 of the last bindings" in caplog.text


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_does_not_show_them_in_time_leaves_the_lease_to_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover_module, "CHECK_SECONDS", 0.0)
    scene = Scene()
    scene.sees("a", 7, change="ADDED")
    scene.bound("a")
    scene.api.pods = {"a": stored("a", 8)}
    scene.api.get = lambda path: asyncio.Event().wait()  # type: ignore[assignment,method-assign,misc]  # for ever
    assert await scene.handed_over() is None


async def test_a_lease_is_not_given_up_while_a_binding_may_be_carried_out_yet(caplog: pytest.LogCaptureFixture) -> None:
    assert await Scene().handed_over(unanswered=2) is None
    assert "could not know of 2 of the last bindings" in caplog.text


async def test_who_leads_no_more_has_nothing_to_hand_over() -> None:
    scene = Scene()
    scene.sees("a", 7, change="ADDED")
    scene.bound("a")
    leader: Any = Leader()
    leader.holding = False
    await scene.handover.hand_over(leader, 1)
    assert (leader.handed_over, leader.expires) == (None, False)


async def test_a_leader_waits_until_its_watch_has_come_as_far_as_the_last_leaders_bindings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene()
    scene.sees("a", 99, change="ADDED")
    leader: Any = Leader(inherited="100")
    waiting = asyncio.create_task(scene.handover.inherit(leader))
    await asyncio.sleep(0)
    scene.sees("a", 98)
    await asyncio.sleep(0)
    assert (waiting.done(), leader.inherited) == (False, "100")
    scene.sees("b", 101, change="DELETED")  # the event itself was another's, or was about a pod that is gone
    await waiting
    assert leader.inherited == ""
    assert [record.levelname for record in caplog.records] == ["INFO"]


@pytest.mark.parametrize(
    ("inherited", "shown"),
    [("", "5"), ("7", "7"), ("7", "10"), ("spoilt", "5"), ("7", "opaque"), ("-8", "7"), ("007", "5")],
)
async def test_nobody_waits_for_what_was_seen_or_can_not_be_compared(
    inherited: str, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene()
    scene.cache.pods_version = shown
    leader: Any = Leader(inherited)
    inheriting = scene.handover.inherit(leader)
    with pytest.raises(StopIteration):
        inheriting.send(None)  # it gives way to nobody
    assert (leader.inherited, caplog.text) == ("", "")


async def test_nobody_waits_without_an_election() -> None:
    await Scene().handover.inherit(None)


async def test_a_version_that_never_comes_is_waited_for_as_long_as_a_lease_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.cache.pods_version = "5"
    leader: Any = Leader(inherited="7000", lease_seconds=0.0)
    await scene.handover.inherit(leader)
    assert "is at version 5 and did not reach 7000 within 0 s: deciding nevertheless" in caplog.text
    assert leader.inherited == "", "nor is it handed on"


@given(st.integers(min_value=1), st.integers(min_value=1))
def test_versions_compare_as_the_integers_that_they_are(one: int, other: int) -> None:
    first, second = order(str(one)), order(str(other))
    assert first is not None
    assert second is not None
    assert (first < second) == (one < other)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover_module, "UNSHOWN_SECONDS", 0.0)


async def rounds(scene: Scene, asked: int) -> None:
    """Watch until so many pods were asked for; what the watch raises is raised."""
    watching = asyncio.ensure_future(scene.handover.watch())
    try:
        async with asyncio.timeout(10):
            while len(scene.api.asked) < asked and not watching.done():
                await asyncio.sleep(0)
        if watching.done():
            watching.result()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_pod_that_was_bound_and_is_not_is_of_a_backup(watched: None) -> None:
    scene = Scene()
    scene.sees("a", 7, change="ADDED")
    scene.bound("a")
    scene.api.pods["a"] = {**stored("a", 7), "spec": {}}
    with pytest.raises(BackupRestored, match="has pod ns/a without a node, after it had confirmed the binding"):
        await rounds(scene, 2)


@pytest.mark.parametrize("answer", [503, stored("a", 8), {"metadata": {}}, {"metadata": {"uid": "a"}, "spec": "?"}])
async def test_a_pod_that_is_bound_or_of_which_nothing_is_said_is_asked_for_again(
    watched: None, answer: dict[str, Any] | int
) -> None:
    scene = Scene()
    scene.sees("a", 7, change="ADDED")
    scene.bound("a")
    scene.api.pods["a"] = answer
    await rounds(scene, 3)
    scene.sees("a", 8, node="n")
    asked = len(scene.api.asked)
    scene.sees("b", 9, change="ADDED")
    scene.bound("b")
    scene.api.pods["b"] = stored("b", 10)
    await rounds(scene, asked + 1)
    assert [path.rpartition("/")[2] for path in scene.api.asked[asked:]] == ["b"]


async def test_a_pod_that_is_shown_or_gone_while_others_are_asked_for_ends_nothing(watched: None) -> None:
    scene = Scene()
    for name in ("a", "b", "c"):
        scene.sees(name, 7, change="ADDED")
        scene.bound(name)
        scene.api.pods[name] = {**stored(name, 7), "spec": {}}
    scene.api.pods["a"] = stored("a", 8)
    asked = scene.api.get

    async def meanwhile(path: str) -> dict[str, Any]:
        if len(scene.api.asked) == 0:  # before the questions about the others have begun
            scene.sees("b", 9, node="n")
            scene.sees("c", 10, change="DELETED")
        return await asked(path)

    scene.api.get = meanwhile  # type: ignore[method-assign]  # what the server does is the test's
    await rounds(scene, 4)


@pytest.mark.parametrize("answer", [404, stored("a", 8, uid="another")])
async def test_a_pod_that_is_gone_is_not_asked_for_again(watched: None, answer: dict[str, Any] | int) -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.sees(name, 7, change="ADDED")
        scene.bound(name)
    scene.api.pods |= {"a": answer, "b": stored("b", 8)}
    await rounds(scene, 4)
    assert [path.rpartition("/")[2] for path in scene.api.asked].count("a") == 1


async def test_a_pod_that_was_bound_a_moment_ago_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.sees("a", 7, change="ADDED")
    scene.bound("a")
    monkeypatch.setattr(handover_module.asyncio, "sleep", one_pause := OnePause())
    with pytest.raises(asyncio.CancelledError):
        await scene.handover.watch()
    assert one_pause.seconds == [handover_module.UNSHOWN_SECONDS] * 2
    assert scene.api.asked == []


class OnePause:
    """Stands for sleeping: the first pause is over at once, the second one ends the task."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) > 1:
            raise asyncio.CancelledError

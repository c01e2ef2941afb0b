# ruff: noqa: E501 - a table of cases reads best with one case a line
"""One binding from its hand-over to its one report, against a server that answers as it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from eviction_bench import at_work

from cotide_core.instructions import Bind, Evict, EvictCause
from cotide_kube.answers import Answer, ApiError
from cotide_kube.objects import NodeObject, PodObject
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.scheduling import binder as binder_module
from cotide_operator.scheduling.binder import CALM_SECONDS, Binder, BindNote, BindReport, Report
from cotide_operator.scheduling.evictor import Evictor
from cotide_operator.scheduling.nominator import Nominator


class Api:
    """Stands for the client: answers bindings with `answers`, and shows `pod` to whoever looks."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.pod: dict[str, Any] | int = 404
        self.posted: list[tuple[str, str]] = []
        self.written: list[Any] = []
        self.gate: asyncio.Event | None = None

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Any, labels: Any) -> Answer:
        self.posted.append((name, node))
        self.written.append((annotations, labels))
        if self.gate is not None:
            await self.gate.wait()
        return self.answers.pop(0) if self.answers else Answer(201)

    async def get(self, path: str) -> dict[str, Any]:
        if isinstance(self.pod, int):
            raise ApiError(self.pod, "Reason", "message")
        return self.pod


class Bench:
    def __init__(self, concurrency: int = 2) -> None:
        self.api = Api()
        self.cache = ObjectCache()
        self.reports: list[Report] = []
        self.come = asyncio.Event()
        self.cache.apply("nodes", "ADDED", msgspec.convert({"metadata": {"name": "n"}}, NodeObject))
        # The binder sees nothing of a client but the two calls above.
        client: Any = self.api
        evictor = Evictor(client, self.cache, Nominator(client, client, self.cache, DecisionStore()))
        self.binder = Binder(client, self.cache, [self.take], evictor, concurrency=concurrency)

    def take(self, report: Report) -> None:
        self.reports.append(report)
        self.come.set()

    def pod(self, name: str = "p", uid: str = "u", change: str = "ADDED", **parts: Any) -> None:
        metadata = {"name": name, "namespace": "ns", "uid": uid, **parts.pop("metadata", {})}
        self.cache.apply("pods", change, msgspec.convert({"metadata": metadata, "spec": parts}, PodObject))

    async def report(self) -> BindReport:
        async with asyncio.timeout(5):
            while not self.reports:
                self.come.clear()
                await self.come.wait()
        (report,) = self.reports
        assert isinstance(report, BindReport)
        return report


def bind(name: str = "p", uid: str = "u", node: str = "n") -> Bind:
    return Bind(f"ns/{name}", uid, node, "because")


ANSWERS = [
    ("taken", Answer(201), 404, (True, False)),
    ("gone", Answer(404, "NotFound"), 404, (False, False)),
    ("a conflict, and it is ours", Answer(409), {"metadata": {"uid": "u"}, "spec": {"nodeName": "n"}}, (True, False)),
    ("a conflict, and it is elsewhere", Answer(409), {"metadata": {"uid": "u"}, "spec": {"nodeName": "m"}}, (False, False)),
    ("a conflict, and it still waits", Answer(409), {"metadata": {"uid": "u"}, "spec": {}}, (False, True)),
    ("a fault, and it is another pod now", Answer(500), {"metadata": {"uid": "v"}, "spec": {}}, (False, False)),
    ("a fault, and it is ending", Answer(500), {"metadata": {"uid": "u", "deletionTimestamp": "t"}, "spec": {}}, (False, False)),
    ("a fault, and it is gone", Answer(500), 404, (False, False)),
    ("a fault, and it is ending in its place", Answer(500), {"metadata": {"uid": "u", "deletionTimestamp": "t"}, "spec": {"nodeName": "n"}}, (True, False)),
    ("throttled, and nobody tells more", Answer(429), 503, (False, True)),
    ("no answer, yet it was carried out", Answer(0), {"metadata": {"uid": "u"}, "spec": {"nodeName": "n"}}, (True, False)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "pod", "expected"), [case[1:] for case in ANSWERS], ids=[case[0] for case in ANSWERS]
)
async def test_each_answer_leads_to_its_report(answer: Answer, pod: Any, expected: tuple[bool, bool]) -> None:
    bench = Bench()
    bench.pod()
    bench.api.answers, bench.api.pod = [answer], pod
    async with at_work(bench.binder):
        bench.binder.submit(bind())
        report = await bench.report()
    assert (report.bound, report.retry) == expected


LOST = Answer(0, "Unreachable", uncertain=True)
FAULT = Answer(500, "InternalError", uncertain=True)
WAITS = {"metadata": {"uid": "u"}, "spec": {}}
UNKNOWN = [
    ("nobody answers, then it is taken", [LOST, LOST], 503, 3, (True, False)),
    ("seen waiting, while the lost one may still come", [LOST], WAITS, 2, (True, False)),
    ("seen waiting, while the second lost one may still come", [LOST, LOST], WAITS, 3, (True, False)),
    ("a fault, and nobody tells more", [FAULT], 503, 2, (True, False)),
    ("a fault, and another after it: it does wait", [FAULT, FAULT], WAITS, 2, (False, True)),
    ("gone when it is posted again", [LOST, Answer(404)], 503, 2, (False, False)),
]


@pytest.mark.parametrize(
    ("answers", "pod", "posts", "expected"), [case[1:] for case in UNKNOWN], ids=[case[0] for case in UNKNOWN]
)
async def test_a_binding_of_unknown_fate_keeps_its_place_until_it_is_known(
    answers: list[Answer], pod: Any, posts: int, expected: tuple[bool, bool]
) -> None:
    bench = Bench()
    bench.pod()
    bench.api.answers, bench.api.pod = list(answers), pod
    async with at_work(bench.binder):
        bench.binder.submit(bind())
        report = await bench.report()  # one, and only when it is known
    assert (report.bound, report.retry) == expected
    assert bench.api.posted == [("p", "n")] * posts


async def test_a_binding_of_unknown_fate_is_let_go_when_its_node_is_gone() -> None:
    bench = Bench()
    bench.pod()
    bench.api.answers, bench.api.pod = [LOST] * 9, 503
    async with at_work(bench.binder):
        bench.binder.submit(bind())
        while not bench.api.posted:
            await asyncio.sleep(0)
        bench.cache.apply("nodes", "DELETED", msgspec.convert({"metadata": {"name": "n"}}, NodeObject))
        report = await bench.report()
    assert (report.bound, report.retry, bench.binder.unanswered) == (False, True, 0)
    assert bench.api.posted == [("p", "n")]


STALE = [
    ("the pod is gone", {"change": "DELETED"}, "n", (404, False)),
    ("the pod was replaced", {"uid": "v"}, "n", (404, False)),
    ("the pod is ending", {"metadata": {"deletionTimestamp": "2026-11-20T13:00:00Z"}}, "n", (404, False)),
    ("the pod has a node", {"nodeName": "m"}, "n", (409, False)),
    ("the node is gone", {}, "other", (404, True)),
]


@pytest.mark.parametrize(("parts", "node", "expected"), [case[1:] for case in STALE], ids=[case[0] for case in STALE])
async def test_what_is_stale_is_never_posted(parts: dict[str, Any], node: str, expected: tuple[int, bool]) -> None:
    bench = Bench()
    bench.pod()
    bench.pod(**{"change": "MODIFIED", **parts})
    async with at_work(bench.binder):
        bench.binder.submit(bind(node=node))
        report = await bench.report()
    assert (report.answer.code, report.retry, report.wall_seconds) == (*expected, 0.0)
    assert bench.api.posted == []


async def test_a_pod_is_never_posted_twice_at_a_time() -> None:
    bench = Bench()
    bench.pod()
    bench.api.gate = asyncio.Event()
    async with at_work(bench.binder):
        bench.binder.submit(bind())
        bench.binder.submit(bind())
        refused = await bench.report()
        assert (refused.answer.reason, refused.retry) == ("UnderWay", True)
        while not bench.api.posted:
            await asyncio.sleep(0)
        bench.api.gate.set()
        async with asyncio.timeout(5):
            await bench.binder.drain()
    assert bench.api.posted == [("p", "n")]
    assert [report.bound for report in bench.reports if isinstance(report, BindReport)] == [False, True]


async def test_a_pod_may_be_bound_again_once_its_binding_is_answered() -> None:
    bench = Bench()
    bench.pod()
    bench.api.answers, bench.api.pod = [Answer(409)], WAITS
    async with at_work(bench.binder):
        bench.binder.submit(bind())
        await bench.report()
        bench.reports.clear()
        bench.binder.submit(bind())
        assert (await bench.report()).bound


async def test_a_pod_that_trips_the_binder_is_quarantined_and_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.pod()
    monkeypatch.setattr(bench.api, "bind", None)
    async with at_work(bench.binder):
        bench.binder.submit(bind())
        report = await bench.report()
    assert (report.bound, report.retry, report.answer.code, report.answer.reason) == (False, True, 0, "InternalError")
    assert bench.cache.quarantine.get("pods", "ns/p") is not None
    assert bench.binder.unanswered == 0


async def test_what_waits_when_it_closes_is_refused_and_nothing_is_waited_for() -> None:
    bench = Bench()
    bench.pod()
    bench.binder.submit(bind())
    bench.binder.submit(Evict("ns/q", "v", "n", "because", EvictCause.PREEMPTED))
    async with asyncio.timeout(5):
        await bench.binder.drain()  # and no worker runs
    assert [(type(report).__name__, report.answer.reason) for report in bench.reports] == [
        ("BindReport", "Stopped"),
        ("EvictReport", "Stopped"),
    ]


async def test_closing_lets_what_is_in_flight_end_and_posts_nothing_more() -> None:
    bench = Bench(concurrency=1)
    for name in ("a", "b", "c"):
        bench.pod(name, uid=name)
    bench.api.gate = asyncio.Event()
    async with at_work(bench.binder):
        for name in ("a", "b"):
            bench.binder.submit(bind(name, uid=name))
        while not bench.api.posted:
            await asyncio.sleep(0)
        bench.binder.close()
        bench.binder.submit(bind("c", uid="c"))
        bench.api.gate.set()
        async with asyncio.timeout(5):
            await bench.binder.drain()
    assert bench.api.posted == [("a", "n")]
    outcome = {report.bind.key: report.bound for report in bench.reports if isinstance(report, BindReport)}
    assert outcome == {"ns/a": True, "ns/b": False, "ns/c": False}
    refused = [report.answer for report in bench.reports if not report.answer.ok]
    assert [(answer.code, answer.reason) for answer in refused] == [(0, "Stopped")] * 2, "no server answered that"
    assert bench.binder.unanswered == 0


async def test_what_nobody_knows_of_when_it_closes_may_be_carried_out_yet() -> None:
    bench = Bench()
    for name in ("lost", "taken", "refused"):
        bench.pod(name, uid=name)
    answers = {"lost": LOST, "taken": Answer(201), "refused": Answer(404, "NotFound")}
    bench.api.pod, bench.api.gate = 503, asyncio.Event()

    async def answer(namespace: str, name: str, *rest: Any) -> Answer:
        await Api.bind(bench.api, namespace, name, *rest)
        return answers[name]

    bench.api.bind = answer  # type: ignore[method-assign]  # always the same, however often it is posted
    async with at_work(bench.binder):
        for name in ("lost", "taken"):
            bench.binder.submit(bind(name, uid=name))
        while len(bench.api.posted) < 2:
            await asyncio.sleep(0)
        assert bench.binder.unanswered == 2
        bench.api.gate.set()
        while not bench.reports:  # "taken"; of "lost" nobody can tell, and it is looked after for a moment
            await asyncio.sleep(0)
        bench.binder.submit(bind("refused", uid="refused"))
        while len(bench.reports) < 2:
            await asyncio.sleep(0)
        assert bench.binder.unanswered == 1
        bench.binder.close()
        async with asyncio.timeout(5):
            await bench.binder.drain()
        assert bench.binder.unanswered == 1
    assert [(report.bind.key, report.bound) for report in bench.reports if isinstance(report, BindReport)] == [
        ("ns/taken", True),
        ("ns/refused", False),
        ("ns/lost", False),
    ]


async def test_a_binding_that_is_cut_short_may_be_carried_out_yet() -> None:
    bench = Bench()
    bench.pod()
    bench.api.gate = asyncio.Event()
    async with at_work(bench.binder):
        bench.binder.submit(bind())
        while not bench.api.posted:
            await asyncio.sleep(0)
    assert (bench.binder.busy, bench.binder.unanswered) == (False, 1)


async def test_what_goes_with_a_binding_is_what_its_report_brings_back_however_often_it_was_posted() -> None:
    bench = Bench()
    bench.pod()
    bench.api.answers = [LOST]  # and the second is taken
    bench.api.pod = {"metadata": {"uid": "u"}, "spec": {}}
    one = bind()
    note = BindNote(
        Decision(one.key, one.uid, 7.0, "n", "Scheduled", "because"),
        {"cotide.dev/decision": "made before"},
        {"cotide.dev/class": "batch"},
    )
    async with at_work(bench.binder):
        bench.binder.carry_out([one], {one.uid: note})
        report = await bench.report()
    assert bench.api.written == [(note.annotations, note.labels)] * 2
    assert report.note is note


async def test_there_is_room_again_once_most_of_a_backlog_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binder_module, "POLL_SECONDS", 60.0)
    bench = Bench(concurrency=1)  # room for one more while one waits
    bench.api.gate = asyncio.Event()
    for index in range(4):
        bench.pod(f"p{index}", uid=str(index))
        bench.binder.submit(bind(f"p{index}", uid=str(index)))
    waiting = asyncio.create_task(bench.binder.room())
    async with at_work(bench.binder):
        await asyncio.sleep(0)
        assert not waiting.done()
        bench.api.gate.set()
        await asyncio.wait_for(waiting, 5)
    assert bench.binder.backlog <= 1


async def test_there_is_no_room_yet_while_more_wait_than_may_be_in_flight() -> None:
    bench = Bench(concurrency=1)  # room for one more while one waits
    bench.api.gate = asyncio.Event()
    for index in range(4):
        if index:  # the first pod is gone, so that its binding ends at once
            bench.pod(f"p{index}", uid=str(index))
        bench.binder.submit(bind(f"p{index}", uid=str(index)))
    async with at_work(bench.binder):
        await bench.report()
        assert bench.binder.backlog == 3
        waiting = asyncio.create_task(bench.binder.room())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        bench.api.gate.set()
        await asyncio.wait_for(waiting, 5)


async def test_a_rush_lasts_a_moment_longer_than_its_last_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, now = Bench(), 100.0
    monkeypatch.setattr(binder_module.time, "monotonic", lambda: now)
    assert not bench.binder.rushed
    bench.pod()
    bench.binder.submit(bind())
    now += 10.0
    assert bench.binder.rushed, "it is not answered yet"
    bench.binder.close()
    assert not bench.binder.rushed, "asked for ten seconds ago, and ended"
    bench.binder.submit(bind())
    asked, now = now, now + CALM_SECONDS - 0.01
    assert bench.binder.rushed, "more may come"
    now = asked + CALM_SECONDS
    assert not bench.binder.rushed


async def test_who_waits_for_calm_waits_no_longer_than_he_says() -> None:
    bench = Bench()
    async with asyncio.timeout(5):
        await bench.binder.calm(1000.0)
        bench.pod()
        bench.binder.submit(bind())  # and nobody works
        others = asyncio.create_task(asyncio.sleep(0))
        await bench.binder.calm(0.01)
        assert others.done(), "the loop went on"
    assert bench.binder.busy

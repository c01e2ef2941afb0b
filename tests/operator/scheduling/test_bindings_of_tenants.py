"""Calls for one namespace hang (a slow webhook); those for other namespaces go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from eviction_bench import at_work

from cotide_core.instructions import Bind
from cotide_kube.answers import Answer
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.object_cache import TYPES, Kind, ObjectCache
from cotide_operator.scheduling import binder as binder_module
from cotide_operator.scheduling import volume_binder as volume_binder_module
from cotide_operator.scheduling.binder import ROOM_PER_BIND, Binder, BindReport, Report
from cotide_operator.scheduling.evictor import Evictor
from cotide_operator.scheduling.nominator import Nominator
from cotide_operator.scheduling.volume_binder import WRITES_AT_ONCE, VolumeBinder
from cotide_operator.translation.volumes.reader import VolumeReader

HANGS = "crowd"
CONCURRENCY = 4


class Bench:
    """A binder on a server that answers no call for namespace `HANGS`, until `answers` is set."""

    def __init__(self) -> None:
        self.cache = ObjectCache()
        self.reports: list[Report] = []
        self.answers = asyncio.Event()
        self.flying: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        reader = VolumeReader(self.cache)
        self.cache.subscribe(lambda kind, key: list(reader.concerned(kind, key)) and None)
        client: Any = self
        evictor = Evictor(client, self.cache, Nominator(client, client, self.cache, DecisionStore()))
        volumes = VolumeBinder(client, self.cache, reader, timeout_seconds=60.0)
        self.binder = Binder(
            client, self.cache, [self.reports.append], evictor, concurrency=CONCURRENCY, volumes=volumes
        )
        self.put("nodes", "n")
        self.put("storageclasses", "made", provisioner="disk", volumeBindingMode="WaitForFirstConsumer")

    def put(self, kind: Kind, name: str, namespace: str = "", **body: Any) -> None:
        metadata = {"name": name, "namespace": namespace, "uid": f"u-{namespace}-{name}", **body.pop("metadata", {})}
        self.cache.apply(kind, "MODIFIED", msgspec.convert({"metadata": metadata, **body}, TYPES[kind]))

    def decide(self, name: str, namespace: str, claim: str | None = None) -> None:
        volumes = [] if claim is None else [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        self.put("pods", name, namespace, spec={"volumes": volumes})
        self.binder.submit(Bind(f"{namespace}/{name}", f"u-{namespace}-{name}", "n", "because"))

    def claim(self, name: str, namespace: str, **metadata: Any) -> None:
        spec = {"storageClassName": "made", "accessModes": ["ReadWriteOnce"]}
        self.put("persistentvolumeclaims", name, namespace, metadata=metadata, spec=spec)

    async def bind(self, namespace: str, *_: Any) -> Answer:
        await self._call(namespace)
        return Answer(201)

    async def patch(self, path: str, _: Any) -> None:
        await self._call(path.split("/")[4])

    async def _call(self, namespace: str) -> None:
        self.flying[namespace] += 1
        self.most[namespace] = max(self.most[namespace], self.flying[namespace])
        try:
            await asyncio.sleep(0)
            if namespace == HANGS:
                await self.answers.wait()
        finally:
            self.flying[namespace] -= 1

    def bound(self) -> list[str]:
        return [report.bind.key for report in self.reports if isinstance(report, BindReport) and report.bound]

    async def until(self, what: Any) -> None:
        async with asyncio.timeout(5):
            while not what():
                await asyncio.sleep(0)


async def test_bindings_that_hang_leave_slots_to_other_namespaces() -> None:
    bench = Bench()
    async with at_work(bench.binder):
        for number in range(50):
            bench.decide(f"p{number}", HANGS)
        await bench.until(lambda: bench.flying[HANGS])
        for number in range(3):
            bench.decide(f"p{number}", "other")
        await bench.until(lambda: len(bench.bound()) == 3)
        assert bench.flying[HANGS] == bench.most[HANGS] == CONCURRENCY
        bench.answers.set()
        await bench.until(lambda: len(bench.bound()) == 53)
    assert bench.binder.backlog == 0


async def test_a_namespace_alone_has_as_many_bindings_in_flight_as_are_configured() -> None:
    bench = Bench()
    async with at_work(bench.binder):
        for number in range(50):
            bench.decide(f"p{number}", "other")
        await bench.until(lambda: len(bench.bound()) == 50)
    assert bench.most == {"other": CONCURRENCY}
    assert bench.bound() == [f"other/p{number}" for number in range(50)], "first come, first served"


async def test_the_loop_does_not_pause_for_a_namespace_whose_bindings_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binder_module, "SLOW_SECONDS", 0.02)
    bench = Bench()
    async with at_work(bench.binder), asyncio.timeout(5):
        for number in range(10 * CONCURRENCY * ROOM_PER_BIND):
            bench.decide(f"p{number}", HANGS)
        await bench.binder.room()
        assert bench.binder.backlog == 10 * CONCURRENCY * ROOM_PER_BIND
        bench.decide("p", "other")
        await bench.binder.room()
        await bench.until(lambda: bench.bound() == ["other/p"])


async def test_the_loop_pauses_for_what_waits_while_bindings_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binder_module, "SLOW_SECONDS", 60.0)
    bench = Bench()
    async with at_work(bench.binder):
        for number in range(CONCURRENCY * ROOM_PER_BIND):
            bench.decide(f"p{number}", HANGS)
        waiting = asyncio.create_task(bench.binder.room())
        await bench.until(lambda: bench.flying[HANGS])
        assert not waiting.done()
        bench.answers.set()
        await asyncio.wait_for(waiting, 5)


async def test_claims_whose_writes_hang_leave_slots_to_other_namespaces() -> None:
    bench = Bench()
    async with at_work(bench.binder):
        for number in range(3 * WRITES_AT_ONCE):
            bench.claim(f"c{number}", HANGS)
            bench.decide(f"p{number}", HANGS, f"c{number}")
        bench.claim("c", "other")
        bench.decide("p", "other", "c")
        await bench.until(lambda: bench.most["other"])
        for _ in range(20):
            await asyncio.sleep(0)
        assert bench.most[HANGS] <= WRITES_AT_ONCE // 2
        bench.binder.close()


async def test_pods_that_wait_for_one_claim_look_a_few_at_a_time_and_namespaces_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(volume_binder_module, "WOKEN_AT_ONCE", 2)
    bench = Bench()
    bench.answers.set()
    seen: list[str] = []
    original = VolumeBinder._look

    def look(self: VolumeBinder, bind: Bind, *rest: Any) -> Any:
        seen.append(bind.key)
        return original(self, bind, *rest)

    monkeypatch.setattr(VolumeBinder, "_look", look)
    async with at_work(bench.binder):
        bench.claim("c", HANGS)
        for number in range(20):
            bench.decide(f"p{number}", HANGS, "c")
        bench.claim("c", "other")
        bench.decide("p", "other", "c")
        await bench.until(lambda: len(seen) == 21)
        seen.clear()
        bench.claim("c", HANGS, annotations={"changed": "yes"})
        bench.claim("c", "other", annotations={"changed": "yes"})
        await bench.until(lambda: seen)
        assert len(seen) == 2
        assert "other/p" in seen
        await bench.until(lambda: len(seen) == 21)
        bench.binder.close()

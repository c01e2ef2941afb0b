"""The emulator beside a real server: the same random calls, the same answers, and the same events to who watches.

``COTIDE_CONFORMANCE_SEED=new`` draws other calls, from a seed that is printed; a number repeats it, and shrinks what
differs. ``COTIDE_CONFORMANCE=2000`` are more sequences. What is left out on purpose stands in
docs/research/emulator.md.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import pytest
from api_calls import Call, Caller, TooOld, sequences
from binaries import Binaries
from call_tables import BASES
from conformance_seed import REPEATED, SEED
from control_plane import control_plane
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from real_cluster import until_served

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.apis.crd_generation import RESOURCES, definition
from cotide_sim.apiserver.testing import server_in_thread

SEQUENCES: Final = int(os.environ.get("COTIDE_CONFORMANCE", "150"))
SHRINKING: Final = (Phase.shrink,) if REPEATED else ()
"""Only of a seed that is repeated: it takes minutes, and what differs is mostly short enough."""
WATCH_SECONDS: Final = 2
KEPT_SEQUENCES: Final = 200
"""Of more, kube-apiserver may have forgotten the first ones by the time they are watched."""
WATCHES: Final = 60
"""From versions on the way; chosen: a few seconds, all of them at once."""

pytestmark = pytest.mark.alone  # what the calls changed is watched in the end, and kube-apiserver keeps it for 75 s


class Pair:
    """A real server without controllers, which would answer in their own time, and the emulator."""

    def __init__(self, real: Caller, emulated: Caller) -> None:
        self.callers = real, emulated
        self._count = itertools.count()
        self.since = {kind: [self._version(caller, kind) for caller in self.callers] for kind in BASES}
        self.made: dict[str, list[Call]] = {}
        self.ways: list[tuple[Caller, Caller]] = []
        """Each sequence's callers with what they have seen."""

    @staticmethod
    def _version(caller: Caller, kind: str) -> str:
        return str(caller.send("GET", f"{BASES[kind]}/{kind}")[1]["metadata"]["resourceVersion"])

    def fresh(self) -> tuple[Caller, Caller]:
        """Give both a new namespace; the real one's pods need its service account."""
        name = f"c{next(self._count)}"
        if self.callers[0].namespace:
            self.ways.append((replace(self.callers[0]), replace(self.callers[1])))
        for caller in self.callers:
            caller.clear()
            caller.seen = []
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            assert caller.send("POST", "/api/v1/namespaces", space)[0] == 201
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            caller.send("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
            caller.namespace = name
            caller.versions.clear()
            caller.uids.clear()
        return self.callers


@pytest.fixture(scope="module")
def pair(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with control_plane(binaries, tmp_path_factory.mktemp("conformance")) as plane, server_in_thread() as emulator:

        async def prepare() -> None:
            for credentials in (plane.admin, Credentials(emulator.url)):
                async with KubeClient(credentials) as client:
                    for resource in RESOURCES:
                        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                        await client.create(path, definition(resource))
            await until_served(plane)

        asyncio.run(prepare())
        yield Pair(Caller(plane.url, "", plane.admin.ssl_context()), Caller(emulator.url, ""))


@seed(SEED)
@settings(
    max_examples=SEQUENCES,
    deadline=None,
    derandomize=False,
    database=None,
    phases=[Phase.explicit, Phase.generate, *SHRINKING],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(calls=sequences())
@example(
    calls=[
        Call("create", "pods", "a", "finalized"),
        Call("delete", "pods", how="plainly"),
        Call("merge", "pods", how="unfinalize"),
    ]
)
@example(calls=[Call("create", "pods"), Call("bind", "pods", how="right uid"), Call("evict", "pods", how="plainly")])
@example(calls=[Call("create", "pods"), Call("bind", "pods", how="right uid"), Call("bind", "pods", how="right uid")])
@example(
    calls=[
        Call("create", "jobs"),
        Call("apply", "jobs", extra="one"),
        Call("apply", "jobs", how="labelled", extra="two"),
    ]
)
@example(calls=[Call("create", "jobs"), Call("merge", "jobs", how="label"), Call("replace", "jobs", version="first")])
# What random calls have found.
@example(calls=[Call("create", "pods", how="labelled"), Call("collection", "pods", how="app=x")])
@example(
    calls=[
        Call("create", "poddisruptionbudgets", how="labelled"),
        Call("apply", "poddisruptionbudgets", how="labelled", extra="two"),
        Call("apply", "poddisruptionbudgets", extra="two"),
    ]
)
@example(calls=[Call("create", "leases", how="bad finalizer")])
@example(calls=[Call("create", "poddisruptionbudgets"), Call("replace", "poddisruptionbudgets", extra="dryRun=All")])
@example(calls=[Call("create", "leases"), Call("replace", "leases", how="labelled")])
@example(calls=[Call("create", "jobs"), Call("replace", "leases", version="nonsense", extra="dryRun=All")])
@example(calls=[Call("create", "events", how="bad name")])
@example(calls=[Call("create", "poddisruptionbudgets", how="bad name")])
@example(calls=[Call("create", "resourcequotas"), Call("delete", "resourcequotas", how="plainly")])
def test_both_answer_alike(pair: Pair, calls: list[Call]) -> None:
    real, emulated = pair.fresh()
    pair.made[real.namespace] = calls
    for done, call in enumerate(calls):
        expected, found = real.answer(call), emulated.answer(call)
        assert found == expected, f"COTIDE_CONFORMANCE_SEED={SEED}: {call} after {calls[:done]}"


def test_who_watches_both_from_the_beginning_sees_the_same(pair: Pair) -> None:
    """After all those calls (or a few of its own, when it runs alone)."""
    callers = pair.fresh()
    for call in (Call("create", "pods"), Call("merge", "pods", how="label"), Call("delete", "pods", how="plainly")):
        assert callers[0].answer(call) == callers[1].answer(call)
    seen = 0
    with ThreadPoolExecutor(2 * len(BASES)) as threads:
        watches = {
            kind: [
                threads.submit(caller.watched, kind, since, WATCH_SECONDS)
                for caller, since in zip(callers, pair.since[kind], strict=True)
            ]
            for kind in BASES
        }
        for kind, (real, emulated) in watches.items():
            try:
                expected = real.result()
            except TooOld:
                continue  # kube-apiserver keeps 75 s of changes, and a hundred: a long run is compared from later on
            found = emulated.result()
            for space in (expected.keys() | found.keys()) & pair.made.keys():
                made = f"{kind} after {pair.made.get(space)}"
                assert found.get(space) == expected.get(space), f"COTIDE_CONFORMANCE_SEED={SEED}: {made}"
            seen += sum(map(len, expected.values()))
    assert seen >= 3 or SEQUENCES > KEPT_SEQUENCES


def test_who_watches_both_from_some_version_on_sees_the_same(pair: Pair) -> None:
    """From versions that were seen on the way, as whoever resumes a watch."""
    pair.fresh()
    rng = random.Random(SEED)
    long = [ways for ways in pair.ways if len(ways[0].seen) > 1]
    drawn = [(ways, rng.randrange(len(ways[0].seen))) for ways in rng.choices(long, k=WATCHES)] if long else []
    compared = 0
    with ThreadPoolExecutor(2 * WATCHES) as threads:
        watches = [[threads.submit(way.resumed, index, WATCH_SECONDS) for way in ways] for ways, index in drawn]
        for (ways, index), (real, emulated) in zip(drawn, watches, strict=True):
            try:
                expected = real.result()
            except TooOld:
                continue
            since = f"from {ways[0].seen[index][1:3]} ({index} of {len(ways[0].seen)}) on"
            made = f"{since} after {pair.made.get(ways[0].namespace)}"
            assert emulated.result() == expected, f"COTIDE_CONFORMANCE_SEED={SEED}: {made}"
            compared += 1
    assert compared >= len(drawn) // 2 or SEQUENCES > KEPT_SEQUENCES

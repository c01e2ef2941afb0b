"""The emulator beside a real server: the same random calls, the same answers, and the same events to who watches.

What is left out on purpose stands in docs/emulator.md. More sequences: ``COTIDE_CONFORMANCE=2000``.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from typing import Final

import pytest
from api_calls import Call, Caller, sequences
from binaries import Binaries
from call_tables import BASES
from control_plane import control_plane
from hypothesis import HealthCheck, Phase, example, given, settings
from real_cluster import until_served

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.apis.crd_generation import RESOURCES, definition
from cotide_sim.apiserver.testing import server_in_thread

SEQUENCES: Final = int(os.environ.get("COTIDE_CONFORMANCE", "150"))
WATCH_SECONDS: Final = 2


class Pair:
    """A real server without controllers, which would answer in their own time, and the emulator."""

    def __init__(self, real: Caller, emulated: Caller) -> None:
        self.callers = real, emulated
        self._count = itertools.count()
        self.since = {kind: [self._version(caller, kind) for caller in self.callers] for kind in BASES}
        self.made: dict[str, list[Call]] = {}

    @staticmethod
    def _version(caller: Caller, kind: str) -> str:
        return str(caller.send("GET", f"{BASES[kind]}/{kind}")[1]["metadata"]["resourceVersion"])

    def fresh(self) -> tuple[Caller, Caller]:
        """Give both a new namespace; the real one's pods need its service account."""
        name = f"c{next(self._count)}"
        for caller in self.callers:
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


@settings(
    max_examples=SEQUENCES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # what differs is short enough, and shrinking takes minutes
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
def test_both_answer_alike(pair: Pair, calls: list[Call]) -> None:
    real, emulated = pair.fresh()
    pair.made[real.namespace] = calls
    for done, call in enumerate(calls):
        expected, found = real.answer(call), emulated.answer(call)
        assert found == expected, f"{call} after {calls[:done]}"


def test_who_watches_both_from_the_beginning_sees_the_same(pair: Pair) -> None:
    """After all those calls (or a few of its own, when it runs alone)."""
    callers = pair.fresh()
    for call in (Call("create", "pods"), Call("merge", "pods", how="label"), Call("delete", "pods", how="plainly")):
        assert callers[0].answer(call) == callers[1].answer(call)
    seen = 0
    for kind in BASES:
        expected, found = (
            caller.watched(kind, since, WATCH_SECONDS) for caller, since in zip(callers, pair.since[kind], strict=True)
        )
        for space in expected.keys() | found.keys():
            assert found.get(space) == expected.get(space), f"{kind} after {pair.made.get(space)}"
        seen += sum(map(len, expected.values()))
    assert seen >= 3

"""A matrix of API faults: whatever a verb gets for an answer, few requests go out, and a pod is bound soon after.

The subset that every run takes has one answer of each kind, for a moment; with ``--chaos-matrix 1`` each verb gets each
answer for 10 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from ailing_proxy import ANSWERS, VERBS, AilingProxy, ailing_proxy
from manifests import job_manifest
from operator_world import PODS, World
from servers import emulated

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.settings import parse_settings

CONFIGURATION = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
policy: fifo
queue: {backoffInitialSeconds: 0.1, backoffMaxSeconds: 1}
"""
ALONE = "leaderElection: {enabled: false}\n"
ELECTED = "leaderElection: {enabled: true, namespace: default, leaseDurationSeconds: 90, renewDeadlineSeconds: 60}\n"
"""The server shares its loop with the operator here, so that the deadline is far above the 8 s as shipped."""
BOUND_SECONDS = 5.0
STEP_SECONDS = 0.25
"""Most that counts between two looks at the pod: what goes beyond is a machine that does other work."""
REQUESTS_A_SECOND = 5.0
BURST = 12.0
"""Requests to one resource beyond that rate: what a fault breaks off begins at once, once or twice over."""
SHORT_SECONDS, LONG_SECONDS = 1.5, 10.0
LEASE_SECONDS = 6.0
"""Below the deadline of a renewal as shipped: a leader that cannot renew for longer must stop."""

FEW = [
    ("watch", "empty"), ("watch", "junk version"), ("watch", "410"), ("watch", "403"), ("watch", "HTML"),
    ("list", "HTML"), ("list", "cut body"), ("get", "500"), ("create", "reset"), ("bind", "429"), ("bind", "HTML"),
    ("bind", "empty"), ("patch", "403"), ("update", "409"), ("delete", "slow"),
]  # fmt: skip

JOBS_FEW = [("watch", "HTML"), ("watch", "400"), ("watch", "410"), ("watch", "500"), ("list", "404"), ("list", "HTML")]
"""Ways in which kopf hears of no Job any more, unless it is kept from hearing of the fault."""
IN_A_ROW = ("reset", "HTML", "410", "500", "403", "empty")
"""Ways in which watches fail one after the other, so that the waits grow to their longest."""


JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}]}}


class Site:
    """A cluster of two nodes, and an operator that sees it through a proxy."""

    def __init__(self, world: World, proxy: AilingProxy, running: asyncio.Task[None]) -> None:
        self._world, self._proxy, self._running, self._pods = world, proxy, running, 0

    async def suffer_with_a_job(self, answer: str, *verbs: str) -> None:
        """Have an ailment for a moment, and see that a Job that is made afterwards is followed."""
        self._proxy.ail(answer, *verbs)
        await asyncio.sleep(SHORT_SECONDS)
        self._proxy.recover()
        self._pods += 1
        job = {**job_manifest(f"job{self._pods}"), "spec": {"class": "batch", "template": TEMPLATE}}
        await self._world.client.create(JOBS, job)
        await self._within(lambda: self._exists(f"{PODS}/job{self._pods}-0"), f"{'/'.join(verbs)} x {answer}: no Job")

    async def _exists(self, path: str) -> bool:
        try:
            return bool(await self._world.client.get(path))
        except ApiError:
            return False

    async def suffer(self, answer: str, *verbs: str, seconds: float) -> None:
        """Have an ailment for so long, with a pod that wants a node meanwhile, and see what comes of it."""
        self._proxy.ail(answer, *verbs)
        await self._make()
        await asyncio.sleep(seconds)
        rates = self._proxy.recover()
        what = f"{'/'.join(verbs)} x {answer}"
        assert not self._running.done(), f"{what}: the operator ended"
        most = REQUESTS_A_SECOND + BURST / seconds
        assert {resource: rate for resource, rate in rates.items() if rate > most} == {}, what
        name = await self._make()
        await self._within(lambda: self._is_bound(name), f"{what}: no pod is bound")

    async def _is_bound(self, name: str) -> bool:
        return bool((await self._world.client.get(f"{PODS}/{name}"))["spec"].get("nodeName"))

    async def _within(self, check: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until something holds, which it shall do in time."""
        waited, last = 0.0, time.monotonic()
        while not await check():
            assert not self._running.done(), f"{what}: the operator ended afterwards"
            assert waited < BOUND_SECONDS, f"{what} afterwards"
            await asyncio.sleep(0.05)
            waited, last = waited + min(STEP_SECONDS, time.monotonic() - last), time.monotonic()

    async def _make(self) -> str:
        self._pods += 1
        await self._world.pods(1, cpu="1m", prefix=f"pod{self._pods}-")
        return f"pod{self._pods}-0"


@contextlib.asynccontextmanager
async def site(folder: Path, election: str = ALONE) -> AsyncIterator[Site]:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(emulated(folder))
        world = World(server, await stack.enter_async_context(KubeClient(server.credentials)))
        await world.nodes(2)
        proxy = await stack.enter_async_context(ailing_proxy(server.credentials))
        options = Options(None, metrics_port=0, install_crds=True)
        operator, stop = (
            Operator(parse_settings(CONFIGURATION + election), options, Credentials(proxy.url)),
            asyncio.Event(),
        )
        running = asyncio.create_task(operator.run(stop))
        try:
            await server.until("the operator decides", lambda: running.done() or not operator._missing())
            await world.pods(1, cpu="1m", prefix="first")  # which loads and compiles whatever a binding needs
            await world.until_placed(1)
            yield Site(world, proxy, running)
        finally:
            stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def test_after_a_short_fault_of_each_kind_a_pod_is_bound(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        for verb, answer in FEW:
            await found.suffer(answer, verb, seconds=SHORT_SECONDS)


async def test_after_a_fault_of_each_kind_a_job_is_followed(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        for verb, answer in JOBS_FEW:
            await found.suffer_with_a_job(answer, verb)


async def test_a_throttle_that_lasts_costs_no_lease(tmp_path: Path) -> None:
    async with site(tmp_path, ELECTED) as found:
        await found.suffer("429", *VERBS, "lease", seconds=LEASE_SECONDS)


@pytest.mark.asked_by("matrix")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_after_each_answer_to_each_verb_a_pod_is_bound(verb: str, answer: str, tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        await found.suffer(answer, verb, seconds=LONG_SECONDS)


@pytest.mark.asked_by("matrix")
async def test_after_each_of_many_faults_in_a_row_a_pod_is_bound(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        for answer in IN_A_ROW:
            await found.suffer(answer, "watch", seconds=LONG_SECONDS)


@pytest.mark.asked_by("matrix")
@pytest.mark.parametrize("answer", ANSWERS)
async def test_whatever_renewals_get_for_a_while_the_leader_leads(answer: str, tmp_path: Path) -> None:
    async with site(tmp_path, ELECTED) as found:
        await found.suffer(answer, "lease", seconds=LEASE_SECONDS)

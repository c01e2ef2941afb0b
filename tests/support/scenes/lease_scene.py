"""Candidates for one lease on the embedded server, each with a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.config.settings import LeaderElectionSettings
from cotide_operator.leaderelection.lease import LeaderElector
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.apiserver.testing import running_server

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SETTINGS: Final = LeaderElectionSettings(
    namespace="default", lease_duration_seconds=15, renew_deadline_seconds=10, retry_period_seconds=2
)


class Time:
    """Time that only passes when a candidate sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps = 0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.naps += 1
        await asyncio.sleep(0)


class Scene:
    """An API server, and candidates for its lease."""

    def __init__(self, server: ApiServer, client: KubeClient) -> None:
        self.server = server
        self.client = client

    def candidate(self, name: str, settings: LeaderElectionSettings = SETTINGS) -> tuple[LeaderElector, Time]:
        time = Time()
        return LeaderElector(self.client, settings, name, monotonic=time.monotonic, sleep=time.sleep), time

    async def lease(self) -> dict[str, Any]:
        spec: dict[str, Any] = (await self.client.get(f"{LEASES}/cotide-operator"))["spec"]
        return spec

    async def whole(self) -> dict[str, Any]:
        return await self.client.get(f"{LEASES}/cotide-operator")


@asynccontextmanager
async def lease_scene() -> AsyncIterator[Scene]:
    """Run a server, and a client for all candidates."""
    async with running_server() as server, KubeClient(Credentials(server.url), timeout_seconds=5) as client:
        yield Scene(server, client)

"""A small life of a cluster beside a crowd of another tenant's objects, or without.

Called by `test_crowds`. The steps are those of `poison_run`. While they are taken, the crowd comes, its objects change
their labels one after the other, and at the end it goes. The outcome is what others see: which of their pods are on
nodes that have room for them, and how long each step took.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from crowds import CROWDS, IN_NAMESPACE, Crowd, Request
from poison_pills import NAMESPACE
from poison_run import OTHERS, PODS, POLICIES, STEPS, PoisonRun, Script, Sight
from servers import Server

from cotide_core.units import resource_amount
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient

AT_ONCE: Final = 8
"""Requests of the crowd at the same time; chosen: as many as a busy client sends."""
CHANGES_SECONDS: Final = 0.004
"""Between two changes of the crowd's objects; chosen: as fast as one client writes one after the other."""
SPACES: Final = "/api/v1/namespaces"
NODES: Final = "/api/v1/nodes"
MILLICORES: Final = {"n0": 4000, "n1": 4000}
"""What the nodes of the others offer."""


@dataclass(frozen=True)
class CrowdScript:
    """What happens, by its seed."""

    seed: int
    policy: str
    crowd: Crowd
    at: int
    """Before which step the crowd begins to come."""

    @classmethod
    def of(cls, seed: int) -> CrowdScript:
        """Draw a script; seeds in a row visit every kind."""
        rng = random.Random(f"crowd {seed}")
        crowd = Crowd.of(rng, list(CROWDS)[seed % len(CROWDS)])
        return cls(seed, rng.choice(POLICIES), crowd, rng.randrange(STEPS - 2))


class CrowdRun(PoisonRun):
    """Carries a script out on a server with nothing on it."""

    def __init__(self, script: CrowdScript, server: Server, client: KubeClient, *, crowded: bool) -> None:
        super().__init__(Script(script.seed, script.policy, "", STEPS, STEPS), server, client, poisoned=False)
        self._crowd_script, self._crowded = script, crowded
        self._churning: asyncio.Task[None] | None = None
        self._arriving: list[asyncio.Task[None]] = []
        self._made: list[str] = []

    async def carry_out(self) -> Sight:
        """Take all steps, and take the crowd away."""
        try:
            return await super().carry_out()
        finally:
            for task in (*self._arriving, *([self._churning] if self._churning else [])):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await self._remove()

    async def _disturb(self, number: int) -> None:
        if self._crowded and number == self._crowd_script.at:
            requests = list(self._crowd_script.crowd.requests())
            self._arriving = [asyncio.create_task(self._make(requests[part::AT_ONCE])) for part in range(AT_ONCE)]
            self._churning = asyncio.create_task(self._churn())
        if self._crowded and number == STEPS - 2:  # two steps are taken when all of it is there
            await asyncio.gather(*self._arriving)
            self.accepted = len(self._made)

    async def _make(self, requests: list[Request]) -> None:
        for path, body in requests:
            with contextlib.suppress(ApiError):
                await self._client.create(path, body)
                self._made.append(f"{path}/{body['metadata']['name']}")

    async def _churn(self) -> None:
        """Change labels of what is there, one object after the other: a pod, then one of any kind."""
        for number in cycle(range(1000)):
            await asyncio.sleep(CHANGES_SECONDS)
            if self._made:
                path = self._made[number % min(10, len(self._made)) if number % 2 else 7 * number % len(self._made)]
                with contextlib.suppress(ApiError):
                    await self._client.patch(path, {"metadata": {"labels": {"turn": str(number)}}})

    async def _remove(self) -> None:
        at_once = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        spaces = {path.split("/")[4] for path in self._made if path.startswith(f"{SPACES}/")}
        for space in sorted(spaces | {NAMESPACE}) if self._crowded else ():
            for path in IN_NAMESPACE:
                with contextlib.suppress(ApiError):
                    await self._client.request("DELETE", path.replace(f"/{NAMESPACE}/", f"/{space}/"), at_once)
        for path in self._made:
            if path.rpartition("/")[0] in (SPACES, NODES):
                with contextlib.suppress(ApiError):
                    await self._client.delete(path)

    async def _look(self) -> None:
        """Note which pods have a node, and that the nodes have room for them."""
        held: dict[str, int] = defaultdict(int)
        for pod in await self._client.list(PODS):
            node = pod["spec"].get("nodeName")
            self.sight.objects[pod["metadata"]["name"]] = bool(node)
            if node:
                cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
                held[node] += resource_amount("cpu", cpu)
        over = {node: amount for node, amount in held.items() if amount > MILLICORES.get(node, 0)}
        assert not over, f"{OTHERS}: pods on nodes without room, in millicores: {over}"

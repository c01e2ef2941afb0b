"""A cluster of a few lines on which plans of consolidation are carried out.

Called by the tests of `carrier`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from cotide_core.consolidation.removal.drain_plan import Freed
from cotide_core.consolidation.removal.what_if import Move
from cotide_operator.consolidation.carrier import Carried, Carrier, NodeNow, PodNow
from cotide_operator.consolidation.gang_now import GangNow


class SmallCluster:
    """Pods of one owner each, made again on node `target` some seconds after they were evicted."""

    def __init__(self, *pods: PodNow, again_after: float = 3.0) -> None:
        self.nodes = {name: NodeNow(False, "") for name in ("a", "b", "c", "target")}
        self.there = list(pods)
        self.time = 0.0
        self.again_after = again_after
        self.due: list[tuple[float, PodNow]] = []
        self.evicted: list[tuple[str, str]] = []
        self.answers: list[int] = []
        self.on_sleep: Callable[[], object] = lambda: None
        self.members: set[str] = set()
        """Keys of the pods of one gang."""
        self.minimum = 0
        self.kept_back: list[str] = []
        """What is said of a budget, one look after the other."""

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)  # whoever else carries gets its turn
        self.on_sleep()
        for due in [one for one in self.due if one[0] <= self.time]:
            self.due.remove(due)
            self.there.append(due[1])

    async def node(self, name: str) -> NodeNow | None:
        return self.nodes.get(name)

    async def marked(self) -> dict[str, str]:
        return {name: node.mark for name, node in self.nodes.items() if node.mark}

    async def mark(self, name: str, mark: str | None, *, cordoned: bool) -> None:
        self.nodes[name] = NodeNow(cordoned, mark or "")

    async def pods(self, *, node: str = "", owner: str = "") -> list[PodNow]:
        return [one for one in self.there if (not node or one.node == node) and (not owner or one.owner == owner)]

    async def gang(self, key: str) -> GangNow | None:
        if key not in self.members:
            return None
        holding = sum(one.key.removesuffix("-2") in self.members for one in self.there)
        await asyncio.sleep(0)  # what is counted may be older than an eviction that is under way
        return GangNow("d/train", self.minimum, holding)

    async def kept(self, keys: Sequence[str]) -> str:
        return self.kept_back.pop(0) if self.kept_back else ""

    async def evict(self, key: str, uid: str) -> int:
        status = self.answers.pop(0) if self.answers else 201
        if not 200 <= status < 300:
            return status
        self.evicted.append((key, uid))
        pod = next(one for one in self.there if one.uid == uid)
        self.there.remove(pod)
        self.due.append((self.time + self.again_after, replace(pod, key=f"{key}-2", uid=f"{uid}-2", node="target")))
        return status


def pod_now(name: str, node: str) -> PodNow:
    return PodNow(f"d/{name}", f"u-{name}", node, f"owner-{name}", True)


def freed(node: str, *names: str) -> Freed:
    return Freed(node, tuple(Move(f"d/{name}", node, "target") for name in names), 1000, 1)


async def carry(cluster: SmallCluster, *plan: Freed, timeout: float = 30.0) -> Carried:
    carrier = Carrier(cluster, timeout_seconds=timeout, now=cluster.now, sleep=cluster.sleep)
    uids = {move.pod: f"u-{move.pod.removeprefix('d/')}" for step in plan for move in step.moves}
    return await carrier.carry_out(plan, uids)


def of_a_gang(*nodes: str, minimum: int, again_after: float = 3.0) -> SmallCluster:
    """Pods 1, 2, ... on these nodes, each of an owner of its own, all of one gang."""
    pods = [pod_now(str(number), node) for number, node in enumerate(nodes, 1)]
    cluster = SmallCluster(*pods, again_after=again_after)
    cluster.members, cluster.minimum = {pod.key for pod in pods}, minimum
    return cluster

"""`Carrier`: carries a plan out, one pod after the other, and stops at the first surprise.

``cotide consolidate --apply`` and the operator's `controller` call it. For each node of the plan::

    cordoned and marked "draining" -> its pods, one at a time: evicted -> gone -> its owner has as many ready as before
        -> next pod ... -> empty: marked "freed", stays cordoned
    surprise, Ctrl-C, cancellation -> the node is uncordoned and unmarked; moved pods and freed nodes stay so

A surprise is a change that the plan did not know:

- A node is gone, or was cordoned by another program or user.
- Our own cordon was removed.
- A pod was replaced, or came to the node since the plan was made.
- An owner added a protection since.
- A disruption budget, or a gang at its minimum, permits no eviction within the time.
- A pod is not ready again within the time.

A pod that went by itself needs no move, and is no surprise; nor is an owner that was scaled down meanwhile. Where pods
come and go, a drain that stopped at those would have moved the others in vain. Marks on nodes make a run resumable: a
killed run leaves at most one node "draining", which the next run, or ``--undo``, uncordons first.

Invariants:

- At most one pod of a node is on its way, and at most one of an owner where several nodes are drained at once.
- No pod is evicted twice, because every eviction names the pod's uid.
- No eviction brings a gang below its minimum: the gang is counted again directly before each one, and only one of its
  pods is on its way at a time.
- A gang that leaves as a whole by the plan is evicted without pauses. All of it must still be on this node, and the
  disruption budgets must permit all evictions; otherwise none of it is evicted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakValueDictionary

from cotide_core.consolidation.removal.drain_plan import Freed
from cotide_core.errors import ClusterError
from cotide_core.units import counted
from cotide_kube.objects import Condition, NodeObject, PodObject
from cotide_operator.apis.names import CONSOLIDATION_MARK
from cotide_operator.cache.object_cache import controller_of, key_of
from cotide_operator.clock import Clock
from cotide_operator.consolidation.gang_now import GangNow
from cotide_operator.translation.eviction_annotations import is_protected, node_protection

MARK: Final = CONSOLIDATION_MARK
"""Annotation of a node: ``draining`` or ``freed``."""
DRAINING: Final = "draining"
FREED: Final = "freed"
STEP_SECONDS: Final = 1.0
"""Interval between two reads of the cluster (chosen)."""
CALM_SECONDS: Final = 30.0
"""An owner with all its pods ready for this time wants no more, although it had more (chosen: its controller makes a
pod within seconds)."""
ENDED: Final = ("Succeeded", "Failed")
TOO_MANY_REQUESTS: Final = 429
GONE: Final = (404, 409)
"""Answers to an eviction of a missing pod: 409 when another has its name."""


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node at this moment; `kept`: why no program may take it out of service, empty where one may."""

    cordoned: bool
    mark: str
    kept: str = ""


def node_now(node: NodeObject) -> NodeNow:
    """Return the fields of a node that a `Carrier` reads."""
    metadata = node.metadata
    kept = node_protection(metadata.labels, metadata.annotations)
    return NodeNow(node.spec.unschedulable, metadata.annotations.get(MARK, ""), kept)


@dataclass(frozen=True, slots=True)
class PodNow:
    """A pod at this moment; `refused`: why no node takes it, empty if unknown; `kept`: whether its owner protects
    it."""

    key: str
    uid: str
    node: str
    owner: str
    ready: bool
    refused: str = ""
    kept: bool = False


def pod_now(pod: PodObject, clock: Clock) -> PodNow:
    """Return the fields of a pod that a `Carrier` reads."""
    owner = controller_of(pod.metadata)
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)
    refused = _refusal(pod)
    return PodNow(
        key_of(pod.metadata),
        pod.metadata.uid,
        pod.spec.node_name,
        "" if owner is None else owner.uid,
        ready and pod.metadata.deletion_timestamp is None,
        "" if refused is None else refused.message,
        is_protected(pod, clock),
    )


def is_unschedulable(pod: PodObject) -> bool:
    """Whether a scheduler marked a pod unschedulable."""
    return _refusal(pod) is not None


def _refusal(pod: PodObject) -> Condition | None:
    found = (condition for condition in pod.status.conditions if condition.type == "PodScheduled")
    return next(
        (condition for condition in found if condition.status == "False" and condition.reason == "Unschedulable"), None
    )


class ClusterHands(Protocol):
    """Actions on nodes and pods. Implemented by `official_client.OfficialClient` and `drain_client.DrainClient`."""

    async def node(self, name: str) -> NodeNow | None:
        """Return a node; None when it is gone."""
        ...

    async def marked(self) -> dict[str, str]:
        """Return the nodes that carry our mark."""
        ...

    async def mark(self, name: str, mark: str | None, *, cordoned: bool) -> None:
        """Cordon or uncordon, and write or remove the mark."""
        ...

    async def pods(self, *, node: str = "", owner: str = "") -> list[PodNow]:
        """Return the pods that have not ended: those on a node, those of an owner, or all."""
        ...

    async def gang(self, key: str) -> GangNow | None:
        """Return the state of a pod's gang; None for a pod without one."""
        ...

    async def kept(self, keys: Sequence[str]) -> str:
        """Return a sentence about the first of several pods that a budget would protect if all were evicted; empty for
        none."""
        ...

    async def evict(self, key: str, uid: str) -> int:
        """Evict; returns the HTTP status."""
        ...


class SurpriseError(Exception):
    """A change that the plan did not know; its text is one sentence."""


@dataclass(frozen=True, slots=True)
class Carried:
    """The result of a run: nodes freed, pods moved, and the surprise that ended it (empty: none)."""

    freed: tuple[str, ...]
    moved: tuple[str, ...]
    surprise: str


class Carrier:
    """Carries plans out; see the drawing above.

    Parameters
    ----------
    timeout_seconds : for each pod to go and be ready again elsewhere.
    now, sleep : the shell's clock.
    goes : keys of pods that end with their node; no successor is awaited.
    say : receives a line for each step.
    """

    def __init__(
        self,
        hands: ClusterHands,
        *,
        timeout_seconds: float,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
        goes: Set[str] = frozenset(),
        say: Callable[[str], object] = lambda _text: None,
    ) -> None:
        self._hands = hands
        self._timeout = timeout_seconds
        self._now, self._sleep = now, sleep
        self._goes = goes
        self._say = say
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks of the gangs and owners with pods on their way; the waiting and the running tasks keep them alive."""

    async def undo(self) -> list[str]:
        """Uncordon the nodes that an earlier run left "draining"; returns those nodes.

        Raises
        ------
        ClusterError
            When some are refused, after all were tried.
        """
        left = [name for name, mark in (await self._hands.marked()).items() if mark == DRAINING]
        failed: list[str] = []
        for name in left:
            try:
                await self._hands.mark(name, None, cordoned=False)
            except ClusterError as error:
                failed.append(f"{name}: {error}")
            else:
                self._say(f"{name}: uncordoned, an earlier run left it draining")
        if failed:
            raise ClusterError(f"still cordoned: {'; '.join(failed)}")
        return left

    async def carry_out(self, plan: tuple[Freed, ...], uids: Mapping[str, str]) -> Carried:
        """Carry out the plan; `uids`: of its pods, by key. A cancellation (Ctrl-C) undoes the cordon."""
        freed: list[str] = []
        moved: list[str] = []
        for step in plan:
            try:
                await self._free(step, uids, moved)
            except SurpriseError as surprise:
                return Carried(tuple(freed), tuple(moved), f"{step.node}: {surprise}")
            freed.append(step.node)
        return Carried(tuple(freed), tuple(moved), "")

    async def _free(self, step: Freed, uids: Mapping[str, str], moved: list[str]) -> None:
        before = await self._hands.node(step.node)
        if before is None:
            raise SurpriseError("the node is gone")
        if before.cordoned:
            raise SurpriseError("the node was cordoned since the plan was made")
        if before.kept:
            raise SurpriseError(f"the node was protected since the plan was made: {before.kept}")
        expected = {move.pod for move in step.moves} | set(self._goes)
        await self._no_stranger(step.node, expected)  # before the cordon: a node that was given back rests for long
        cordoned = False
        try:
            cordoned = True  # before the call: it may be carried out although its answer is lost
            await self._hands.mark(step.node, DRAINING, cordoned=True)
            self._say(f"{step.node}: cordoned, {counted(len(step.moves), 'pod')} to move")
            await self._no_stranger(step.node, expected)
            gangs = {pod: gang for gang in step.together for pod in gang}
            for move in step.moves:
                gang = gangs.get(move.pod)
                if gang is None:
                    moved += [move.pod] if await self._move(step.node, move.pod, uids[move.pod]) else []
                elif move.pod == gang[0]:
                    moved += await self._move_together(step.node, gang, uids)
            await self._still_ours(step.node)
            await self._hands.mark(step.node, FREED, cordoned=True)
            cordoned = False
            self._say(f"{step.node}: free")
        finally:
            if cordoned:
                await self._hands.mark(step.node, None, cordoned=False)
                self._say(f"{step.node}: uncordoned again")

    async def _still_ours(self, node: str) -> None:
        """Check that a node is still cordoned by us: after a foreign uncordon it is neither drained nor cordoned
        again."""
        now = await self._hands.node(node)
        if now is not None and not now.cordoned:
            raise SurpriseError("the node was uncordoned during the drain")
        if now is not None and now.kept:
            raise SurpriseError(f"the node was protected since the plan was made: {now.kept}")

    async def _no_stranger(self, node: str, expected: Set[str]) -> None:
        pods = await self._hands.pods(node=node)
        stranger = next((now.key for now in pods if now.key not in expected), None)
        if stranger is not None:
            raise SurpriseError(f"pod {stranger} came to the node since the plan was made")

    async def _move(self, node: str, key: str, uid: str) -> bool:
        """Evict one pod and wait until its owner has as many ready pods as before; False when it went by itself."""
        pod = await self._still_there(node, key, uid)
        if pod is None:
            return False
        gang = await self._hands.gang(key)
        turn = pod.owner if gang is None else f"gang {gang.key}"
        lock = self._turns.setdefault(turn, asyncio.Lock())
        async with lock:
            pod = await self._still_there(node, key, uid)  # it may have changed while this task waited for its turn
            if pod is None:
                return False
            await self._evict_and_wait(pod)
        return True

    async def _move_together(self, node: str, keys: Sequence[str], uids: Mapping[str, str]) -> list[str]:
        """Evict a whole gang and wait until the owners have as many ready pods as before; returns the evicted pods."""
        pods = await self._those_there(node, keys, uids)
        if not pods:
            return []
        gang = await self._whole(pods)
        async with self._turns.setdefault(f"gang {gang.key}", asyncio.Lock()):
            pods, until = await self._those_there(node, keys, uids), self._now() + self._timeout
            of_owners = {pod.owner: pod for pod in pods}.items()
            ready = {owner: _ready(await self._siblings(now), owner) for owner, now in of_owners}
            while why := await self._kept_back(pods):
                if self._now() >= until:
                    raise SurpriseError(f"{why}, for {self._timeout:g} s")
                await self._sleep(STEP_SECONDS)
            for number, pod in enumerate(pods):
                await self._still_ours(node)
                await self._ask(pod, until, f", after {number} of {len(pods)} pods of its gang" if number else "")
            for pod in pods:
                await self._back(pod, ready[pod.owner], until)
        return [pod.key for pod in pods]

    async def _those_there(self, node: str, keys: Sequence[str], uids: Mapping[str, str]) -> list[PodNow]:
        found = [await self._still_there(node, key, uids[key]) for key in keys]
        return [now for now in found if now is not None]

    async def _kept_back(self, pods: Sequence[PodNow]) -> str:
        """Return the present obstacle to a gang that is still as planned; empty when it may leave."""
        if not pods:
            return ""
        await self._whole(pods)
        return await self._hands.kept([pod.key for pod in pods])

    async def _whole(self, pods: Sequence[PodNow]) -> GangNow:
        """Return the gang of these pods, which must be all of its pods on nodes."""
        gang = await self._hands.gang(pods[0].key)
        if gang is None or gang.holding != len(pods):
            named = f"the gang of pod {pods[0].key}" if gang is None else f"gang {gang.key}"
            raise SurpriseError(f"{named} is no longer complete on the node")
        return gang

    async def _still_there(self, node: str, key: str, uid: str) -> PodNow | None:
        pod = next((now for now in await self._hands.pods(node=node) if now.key == key), None)
        if pod is None:
            self._say(f"{key}: went by itself")
        elif pod.uid != uid:
            raise SurpriseError(f"pod {key} was replaced since the plan was made")
        elif pod.kept:
            raise SurpriseError(f"pod {key} must not be disrupted: its owner protected it since the plan was made")
        return pod

    async def _evict_and_wait(self, pod: PodNow) -> None:
        ready = _ready(await self._siblings(pod), pod.owner)
        until = self._now() + self._timeout
        await self._evict(pod, until)
        await self._back(pod, ready, until)

    async def _back(self, pod: PodNow, ready: int, until: float) -> None:
        """Wait until a pod is gone and its owner has as many ready pods as before."""
        refused, calm_since = "", None
        while self._now() < until:
            pods = await self._siblings(pod)
            if not any(now.uid == pod.uid for now in pods):
                of_owner = [now for now in pods if now.owner == pod.owner]
                calm_since = (calm_since or self._now()) if all(now.ready for now in of_owner) else None
                calm = calm_since is not None and self._now() - calm_since >= CALM_SECONDS
                if not pod.owner or _ready(pods, pod.owner) >= ready or calm:
                    self._say(f"{pod.key}: moved")
                    return
                refused = next((now.refused for now in pods if now.owner == pod.owner and now.refused), "")
            await self._sleep(STEP_SECONDS)
        if any(sibling.uid == pod.uid for sibling in await self._siblings(pod)):
            raise SurpriseError(f"pod {pod.key} was evicted, and still exists after {self._timeout:g} s")
        why = f": {refused}" if refused else ""
        raise SurpriseError(
            f"pod {pod.key} was evicted, and its owner had no pod ready again in {self._timeout:g} s{why}"
        )

    async def _siblings(self, pod: PodNow) -> list[PodNow]:
        """Return the pods among which the evicted pod disappears and its successor appears."""
        if pod.owner:
            return await self._hands.pods(owner=pod.owner)
        return await self._hands.pods(node=pod.node)  # it has no successor; without either filter it would be all pods

    async def _evict(self, pod: PodNow, until: float) -> None:
        while True:
            gang = await self._hands.gang(pod.key)
            if gang is None or gang.spare >= 1:
                await self._still_ours(pod.node)  # a budget may have delayed it for long
                if await self._lets_go(pod):
                    return
                gang = None
            if self._now() >= until:
                obstacle = "a disruption budget" if gang is None else _at_its_minimum(gang)
                raise SurpriseError(f"{obstacle} refused the eviction of pod {pod.key} for {self._timeout:g} s")
            await self._sleep(STEP_SECONDS)

    async def _ask(self, pod: PodNow, until: float, addition: str) -> None:
        """Evict a pod of a gang that leaves as a whole; ``addition`` ends the text of a surprise."""
        while not await self._lets_go(pod):
            if self._now() >= until:
                raise SurpriseError(f"a disruption budget refused the eviction of pod {pod.key}{addition}")
            await self._sleep(STEP_SECONDS)
            await self._still_ours(pod.node)

    async def _lets_go(self, pod: PodNow) -> bool:
        """Request an eviction; False when a disruption budget refuses it."""
        status = await self._hands.evict(pod.key, pod.uid)
        if 200 <= status < 300 or status in GONE:
            return True
        if status != TOO_MANY_REQUESTS:
            raise SurpriseError(f"the API server answered {status or 'nothing'} to the eviction of pod {pod.key}")
        return False


def _at_its_minimum(gang: GangNow) -> str:
    return f"gang {gang.key} at its minimum ({gang.holding + gang.succeeded} of {gang.minimum} pods)"


def _ready(pods: list[PodNow], owner: str) -> int:
    return sum(pod.ready and pod.owner == owner for pod in pods)

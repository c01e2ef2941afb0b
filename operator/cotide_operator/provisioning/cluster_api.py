"""Removes machines of Cluster API's MachineDeployments: exactly those with free nodes.

Used by `controller` where ``actuator.scalesDown`` is set, for nodes that consolidation has freed and handed over. When
a MachineSet is scaled down, it first deletes Machines with the annotation ``cluster.x-k8s.io/delete-machine``, whatever
its delete policy (https://cluster-api.sigs.k8s.io/reference/api/labels-and-annotations). So this module marks the
Machine of the node. At a later look, when Cluster API must have seen the mark, it lowers the replicas by the number of
marks::

    node is free --> Machine marked --(later look: all is at rest)--> written into the book --> replicas lowered
                                                 Cluster API deletes it <-- reported, and removed from the book <-'

Invariants: replicas are lowered only while there are as many Machines as replicas, and only by the number of our marks.
A write names the version that was read. So a lost answer, a restart or a second operator lowers nothing twice. The book
of orders records a lowering before it happens and until it is reported, whenever the book can be written. After a lost
answer, the look that shows the lowering reports it once, also under the next operator. A second report is possible only
when a leader ends, or loses the API server, between the report and its removal from the book. A mark of ours is removed
when the Machine's node is wanted again. While a Machine carries a foreign mark, nothing is lowered: that Machine might
go in place of ours or together with it. The same holds while the Machines belong to several MachineSets, as in a
roll-out: a mark counts within its set only, and the oldest set is lowered first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from cotide_core.errors import ClusterError, InputError
from cotide_core.provisioning.node_orders import Lowering, OrderBook
from cotide_kube.answers import ApiError, is_named
from cotide_kube.objects import ApiStruct, Metadata
from cotide_kube.plain_objects import all_checked, checked
from cotide_operator.config.provisioning_settings import MACHINE_DEPLOYMENT
from cotide_operator.provisioning.actuators import ScaleSubresource, is_unanswered

_LOG = logging.getLogger(__name__)

DELETE: Final = "cluster.x-k8s.io/delete-machine"
OURS: Final = "cotide"
"""Value of our mark; Cluster API reads the name only."""
OF_NODE: Final = "cluster.x-k8s.io/machine"
OF_NAMESPACE: Final = "cluster.x-k8s.io/cluster-namespace"
"""Annotations of a node, set by Cluster API: its Machine, and the namespace of the Machine."""
OF_DEPLOYMENT: Final = "cluster.x-k8s.io/deployment-name"
OF_SET: Final = "cluster.x-k8s.io/set-name"
"""Labels of a Machine."""


class _Counts(ApiStruct, frozen=True):
    replicas: int = 0
    observed_generation: int = 0


class _DeploymentObject(ApiStruct, frozen=True):
    metadata: Metadata
    spec: _Counts = _Counts()
    status: _Counts = _Counts()


class _MachineObject(ApiStruct, frozen=True):
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of one look at one type.

    Attributes
    ----------
    leaving : nodes with Machines that are being deleted, or are gone.
    lowered : replicas from now on, when this look lowered them, or an earlier request without an answer did. That
        request may be of an earlier leader. The caller reports it and then calls `MachineRemoval.announced`.
    marked : nodes with Machines that were marked in this step.
    strange : Machines of other MachineDeployments, which stay unchanged.
    is_clean : whether every mark of ours is still needed.
    refused : why no Machine is removed, since another one might go; empty when nothing prevents the removal.
    """

    leaving: frozenset[str]
    lowered: int | None = None
    marked: tuple[str, ...] = ()
    strange: tuple[str, ...] = ()
    is_clean: bool = True
    refused: str = ""


def machine_of(node: Mapping[str, Any], path: str) -> str:
    """Return the name of a node's Machine.

    Raises
    ------
    InputError
        When the node names no Machine, or one that can't belong to that MachineDeployment.
    """
    metadata = node.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    found = MACHINE_DEPLOYMENT.fullmatch(path)
    machine, namespace = annotations.get(OF_NODE), annotations.get(OF_NAMESPACE)
    if found is None or not machine:
        raise InputError(f"node {metadata.get('name')} has no annotation {OF_NODE}", field=OF_NODE)
    if namespace != found["namespace"]:
        words = f"the Machine of node {metadata.get('name')} is in {namespace}, {path} is not"
        raise InputError(words, field=OF_NAMESPACE)
    return str(machine)


class BookKeeping(Protocol):
    """Storage of the book: `carrying.BookStore`."""

    async def load(self) -> OrderBook:
        """Return the book."""
        ...

    async def save(self, book: OrderBook) -> None:
        """Write the book; raises `ClusterError` when it can't be written, or another process wrote meanwhile."""
        ...


class _Step(NamedTuple):
    """Findings of a look, and the next action.

    Attributes
    ----------
    lower : the new, lower number of replicas; None for no change.
    falls : nodes with Machines that the lowering deletes.
    is_spent : whether the earlier request is reported now, or can no longer be carried out.
    """

    found: Removal
    lower: Lowering | None = None
    falls: frozenset[str] = frozenset()
    is_spent: bool = True


class MachineRemoval:
    """Removes Machines through the official client, in a thread.

    Parameters
    ----------
    store : of the book; nothing else writes it where replicas make machines.
    """

    def __init__(self, scales: ScaleSubresource, store: BookKeeping) -> None:
        self._scales, self._store = scales, store
        self._asked: dict[str, Lowering] = {}
        """By path, lowerings that were requested and are not reported yet."""
        self._book: OrderBook | None = None
        """As it is written; None while that is unknown."""
        self._is_read = False
        """Whether the requests of the leader before are known."""
        self._is_behind = False
        """Whether the book lacks entries that it should have."""

    async def remove(self, path: str, machines: Mapping[str, str]) -> Removal:
        """Advance by one step the removal of exactly these Machines of a MachineDeployment.

        Parameters
        ----------
        machines : node to Machine; an empty mapping removes all our marks.

        Raises
        ------
        InputError
            When the path does not name a MachineDeployment.
        ClusterError
            When the API server refuses, or does not answer, or its answer is odd.
        """
        await self._keep()
        asked = self._asked.get(path)
        step = await asyncio.to_thread(self._look, path, machines, asked)
        if step.lower is not None:
            await self._note(path, step.lower)
            try:
                await asyncio.to_thread(self._lower, path, step.lower)
            except ClusterError as error:
                if not is_unanswered(error):  # the earlier request may have come first
                    await self._note(path, None if step.is_spent else asked)
                raise
            return replace(step.found, lowered=step.lower.replicas, leaving=step.found.leaving | step.falls)
        if asked is not None and step.is_spent and step.found.lowered is None:
            await self._note(path, None)
        waits = self._is_behind or (asked is not None and not step.is_spent)  # it may still be carried out
        return replace(step.found, is_clean=step.found.is_clean and not waits)

    async def announced(self, path: str) -> None:
        """Remove the lowering from the book, now that it is reported."""
        await self._note(path, None)

    async def _note(self, path: str, asked: Lowering | None) -> None:
        if asked is None:
            self._asked.pop(path, None)
        else:
            self._asked[path] = asked
        await self._keep()

    async def _keep(self) -> None:
        """Write the current requests into the book.

        When the book can't be read or written, machines are still removed, and the next look tries again. Until then
        only the next leader would lack the requests.
        """
        try:
            if self._book is None:
                self._book = await self._store.load()
            if not self._is_read:
                self._asked = dict(self._book.lowering) | self._asked
                self._is_read = True
            after = replace(self._book, lowering=tuple(self._asked.items()))
            if after != self._book:
                self._book = None  # until it is written
                await self._store.save(after)
                self._book = after
        except (ClusterError, InputError) as error:
            behind, self._book = self._is_behind, None
            self._is_behind = behind or bool(self._asked) or self._is_read
            if not behind and self._is_behind:  # one line when trouble starts
                _LOG.warning("the book of node orders lacks the lowered replicas and is written later: %s", error)
            return
        self._is_behind = False

    def _look(self, path: str, wanted: Mapping[str, str], asked: Lowering | None) -> _Step:
        target = MACHINE_DEPLOYMENT.fullmatch(path)
        if target is None:
            raise InputError(f"{path} is not a MachineDeployment of Cluster API", field="actuator.scales")
        here = f"{target['group']}/namespaces/{target['namespace']}/machines"
        # Before its Machines: a change between the two reads makes the version stale, and the write is refused.
        deployment = checked(self._scales.call("GET", path), _DeploymentObject, "MachineDeployment")
        if not deployment["metadata"].get("resourceVersion"):
            raise ClusterError(f"GET {path}: the answer is not what an API server sends")
        label = f"{OF_DEPLOYMENT}={target['name']}"
        machines = self._machines(here, label)
        alive = {name: item for name, item in machines.items() if not item.get("deletionTimestamp")}
        leaving = {node for node, text in wanted.items() if text not in alive and self._is_going(here, text, machines)}
        going = {machine: node for node, machine in wanted.items() if machine in alive}
        strange = tuple(text for node, text in wanted.items() if text not in alive and node not in leaving)
        marks = {name: (item.get("annotations") or {})[DELETE] for name, item in alive.items() if _is_marked(item)}
        replicas = int((deployment.get("spec") or {}).get("replicas") or 0)
        version = deployment["metadata"]["resourceVersion"]
        before = replicas if asked is not None and replicas == asked.replicas else None
        is_spent = before is not None or asked is None or version != asked.version
        stale = sorted(name for name, mark in marks.items() if mark == OURS and name not in going)
        # Not while there are too many Machines: without its mark, a busy Machine would be deleted instead.
        for name in stale if len(alive) <= replicas else ():
            self._mark(f"{here}/{name}", None)
        is_clean = not stale or len(alive) <= replicas
        refused = _why_another_might_go(alive, marks) if going else ""
        if refused:
            found = Removal(frozenset(leaving), before, strange=strange, is_clean=is_clean, refused=refused)
            return _Step(found, is_spent=is_spent)
        new = sorted(name for name in going if name not in marks)
        for name in new:
            self._mark(f"{here}/{name}", OURS)
        marked = [name for name in going if name in marks]  # at an earlier look: Cluster API has seen the marks
        if marked and len(alive) - replicas >= len(marked):
            leaving |= {going[name] for name in marked}  # lowered for them before, and about to be deleted
        found = Removal(frozenset(leaving), before, tuple(going[name] for name in new), strange, is_clean)
        idle = not (new or stale) and before is None and _is_at_rest(deployment, replicas, len(alive))
        if not marked or not idle:
            return _Step(found, is_spent=is_spent)
        falls = frozenset(going[name] for name in marked)
        return _Step(found, Lowering(replicas - len(marked), version), falls, is_spent)

    def _machines(self, here: str, label: str) -> dict[str, dict[str, Any]]:
        """Return the metadata of the Machines with a label, by name; skipping an invalid one would lower the count."""
        answer = self._scales.call("GET", here, query=[("labelSelector", label)])
        listed = all_checked(answer.get("items") or (), _MachineObject, "Machine")
        if "items" not in answer or not all(map(is_named, listed)):
            raise ClusterError(f"GET {here}: the answer is not what an API server sends")
        return {item["metadata"]["name"]: item["metadata"] for item in listed}

    def _lower(self, path: str, lower: Lowering) -> None:
        body = {"metadata": {"resourceVersion": lower.version}, "spec": {"replicas": lower.replicas}}
        self._scales.call("PATCH", f"{path}/scale", body)

    def _is_going(self, here: str, machine: str, listed: Mapping[str, Any]) -> bool:
        """Whether a Machine outside the living ones is being deleted or gone, and belongs to this MachineDeployment."""
        if machine in listed:
            return True
        try:
            self._scales.call("GET", f"{here}/{machine}")
        except ApiError as error:
            if error.status == 404:
                return True
            raise
        return False

    def _mark(self, path: str, value: str | None) -> None:
        try:
            self._scales.call("PATCH", path, {"metadata": {"annotations": {DELETE: value}}})
        except ApiError as error:
            if error.status != 404:  # gone meanwhile
                raise


def _why_another_might_go(alive: Mapping[str, Mapping[str, Any]], marks: Mapping[str, str]) -> str:
    """Return why Cluster API might delete a Machine without our mark; empty when it would not."""
    foreign = sorted(name for name, mark in marks.items() if mark != OURS)
    if foreign:
        return f"Machine {foreign[0]} has the annotation {DELETE} of another client: none is removed"
    sets = {(machine.get("labels") or {}).get(OF_SET) for machine in alive.values()}
    if len(sets) > 1:
        found = f"its Machines are of {len(sets)} MachineSets, as in a roll-out"
        return f"{found}: none is removed until they are of one"
    return ""


def _is_marked(machine: Mapping[str, Any]) -> bool:
    return DELETE in (machine.get("annotations") or {})


def _is_at_rest(deployment: Mapping[str, Any], replicas: int, machines: int) -> bool:
    """Whether there are as many Machines as replicas, and Cluster API has observed the latest specification."""
    metadata, status = deployment["metadata"], deployment.get("status") or {}
    return (
        replicas == machines == status.get("replicas", 0)
        and metadata.get("generation") == status.get("observedGeneration")
        and not metadata.get("deletionTimestamp")
    )

"""Operators that are broken on purpose: each must be caught.

Used inside the operator's process (`operator_child`) for plans that ask for it. Each mutant is a fault that somebody
could make, or that we had.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

from machine_mutants import MACHINE_MUTANTS
from world_mutants import WORLD_MUTANTS


def install(name: str) -> None:
    """Break this process."""
    _MUTANTS[name]()


def _hasty() -> None:
    """A binding whose answer is lost is given up, and its place given away."""
    from cotide_operator.scheduling.binder import Binder

    async def fate(self: Any, bind: Any, answer: Any, *, last: bool) -> Any:
        if answer.ok or answer.code == 404:
            return answer.ok, False
        return await self._look(bind) or (False, True)

    Binder._fate = fate  # type: ignore[method-assign]  # on purpose


def _forgetful() -> None:
    """A pod that was decided on holds nothing until the watch tells of it."""
    from cotide_core.state.cluster_state import ClusterState

    hold = ClusterState._hold

    def held(self: Any, record: Any) -> None:
        if record.assumed_seconds is None:
            hold(self, record)

    ClusterState._hold = held  # type: ignore[method-assign]  # on purpose


def _by_the_wall() -> None:
    """Time is what the machine's clock says, held where that was set back."""
    from cotide_operator.clock import ScaledClock

    latest = [0.0]

    def now(self: Any) -> float:
        latest[0] = max(latest[0], time.time())
        return latest[0]

    ScaledClock.now = now  # type: ignore[method-assign]  # on purpose


def _complacent() -> None:
    """A status that met a conflict is taken for written."""
    from cotide_kube.answers import ApiError
    from cotide_operator.controllers.status_writer import StatusWriter

    write = StatusWriter.write

    async def written(self: Any, item: Any, kept: Any, status: Any, *, at_once: bool = False) -> Any:
        try:
            return await write(self, item, kept, status, at_once=at_once)
        except ApiError:
            kept.status = status
            return None

    StatusWriter.write = written  # type: ignore[method-assign]  # on purpose


def _discreet() -> None:
    """The calls that tell of the first end of a pod are left out of the ledger: its node stays full there."""
    from cotide_core.events import PodPhase, PodUpserted
    from cotide_operator.observability.ledger_file import LedgerFile

    entry, left_out = LedgerFile.entry, set[str]()

    def kept(self: Any, now: float, events: Any, instructions: Any) -> None:
        ended = {
            event.pod.key
            for event in events
            if isinstance(event, PodUpserted) and event.pod.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        }
        if not left_out:
            left_out.update(ended)
        if not ended & left_out:
            entry(self, now, events, instructions)

    LedgerFile.entry = kept  # type: ignore[method-assign]  # on purpose


def _unfair() -> None:
    """After a restart whoever is last in the alphabet came first."""

    from cotide_operator.translation.event_source import EventSource

    collect_part = EventSource.collect_part

    def collected(self: Any) -> Any:
        fresh = not self._live
        events = collect_part(self)
        if not fresh:
            return events
        first = min((event.pod.created_seconds for event in events if hasattr(event, "pod")), default=0.0)
        passed_on = []
        for event in events:
            if hasattr(event, "pod"):
                pod = event.pod._replace(created_seconds=first - ord(event.pod.key.rpartition("/")[2][0]))
                self._pods[pod.key] = pod
                passed_on.append(type(event)(pod))
            else:
                passed_on.append(event)
        return passed_on

    EventSource.collect_part = collected  # type: ignore[method-assign]  # on purpose


def _untracked() -> None:
    """Pods of Jobs carry no finalizer, as they once did not."""
    from cotide_operator.controllers import job_controller

    job_pod = job_controller.job_pod

    def made(*job: Any, **about: Any) -> Any:
        manifest = job_pod(*job, **about)
        del manifest["metadata"]["finalizers"]
        return manifest

    job_controller.job_pod = made  # type: ignore[assignment]  # on purpose


def _careless() -> None:
    """A pod that ended is let go before its end is written down."""
    from cotide_operator.controllers.child_pods import see
    from cotide_operator.controllers.job_controller import JobController

    reconcile = JobController.reconcile

    async def reconciled(self: Any, key: str) -> Any:
        ended = [pod for pod in map(see, self._cache.pods_kept_for(key)) if pod.done]
        await self._tracking.release(key.partition("/")[0], ended)
        return await reconcile(self, key)

    JobController.reconcile = reconciled  # type: ignore[method-assign]  # on purpose


def _unfenced() -> None:
    """Whoever led once writes on, whoever leads by now."""
    from cotide_operator.leaderelection.lease_thread import LeaseThread

    LeaseThread.permit = lambda _self: None  # type: ignore[method-assign]  # on purpose


def _binds_twice() -> None:
    """Each binding is posted twice at a time; the server refuses one."""
    from cotide_kube.client import KubeClient

    bind = KubeClient.bind

    async def bound(self: Any, *what: Any) -> Any:
        answers = await asyncio.gather(bind(self, *what), bind(self, *what))
        return next((answer for answer in answers if answer.ok), answers[0])

    KubeClient.bind = bound  # type: ignore[method-assign]  # on purpose


def _binds_again() -> None:
    """A pod that was bound is bound once more, to be sure."""
    from cotide_kube.client import KubeClient

    bind = KubeClient.bind

    async def bound(self: Any, *what: Any) -> Any:
        answer = await bind(self, *what)
        if answer.ok:
            await bind(self, *what)
        return answer

    KubeClient.bind = bound  # type: ignore[method-assign]  # on purpose


def _unmindful() -> None:
    """Nobody looks for nodes that a killed operator left draining."""
    from cotide_core.consolidation.removal.watching import Mark, Watch

    over = Watch._over

    def passed_over(self: Any, name: str, one: Any, view: Any) -> str:
        return "" if one.mark is Mark.DRAINING else over(self, name, one, view)

    Watch._over = passed_over  # type: ignore[method-assign]  # on purpose


def _unmarked() -> None:
    """A node is cordoned first, and marked as ours only then, when everything else is done."""
    from cotide_operator.consolidation.drain_client import DrainClient

    patch = DrainClient._patch

    async def patched(self: Any, node: Any, written: Any, body: Any) -> None:
        if body.get("spec", {}).get("unschedulable"):
            await self._client.patch(f"/api/v1/nodes/{node.metadata.name}", {"spec": {"unschedulable": True}})
            await asyncio.sleep(0.2)
        await patch(self, node, written, body)

    DrainClient._patch = patched  # type: ignore[method-assign]  # on purpose


def _evicts_again() -> None:
    """A pod that was evicted is evicted once more, to be sure."""
    from cotide_operator.consolidation.drain_client import DrainClient

    evict = DrainClient.evict

    async def evicted(self: Any, key: str, uid: str) -> int:
        status = await evict(self, key, uid)
        await evict(self, key, uid)
        return status

    DrainClient.evict = evicted  # type: ignore[method-assign]  # on purpose


def _promising() -> None:
    """A phase is granted as soon as its size is asked for."""
    from cotide_operator.scheduling.phase_resizer import PhaseResizer
    from cotide_operator.translation.pod_phases import asked_by

    def holds(self: Any, one: Any, needs: Any) -> bool:
        del self
        return all(has >= need for has, need in zip(asked_by(one.pod), needs, strict=True))

    PhaseResizer._holds = holds  # type: ignore[method-assign]  # on purpose


def _never_grants() -> None:
    """A phase waits for its size however long that takes."""
    from cotide_operator.scheduling import phase_resizer

    phase_resizer.GRANTED_ANYWAY_SECONDS = float("inf")


def _piecemeal() -> None:
    """A gang starts pod by pod."""
    from cotide_core.events import PodUpserted
    from cotide_operator.translation.event_source import EventSource

    collect_part = EventSource.collect_part

    def collected(self: Any) -> Any:
        return [
            PodUpserted(event.pod._replace(gang=event.pod.gang._replace(minimum=1)))
            if isinstance(event, PodUpserted) and event.pod.gang is not None
            else event
            for event in collect_part(self)
        ]

    EventSource.collect_part = collected  # type: ignore[method-assign]  # on purpose


def _off_the_book() -> None:
    """Orders are kept in mind and not written down; each operator numbers its own."""
    from cotide_core.provisioning.node_orders import OrderBook
    from cotide_operator.provisioning.carrying import BookStore

    async def kept(self: Any, book: Any) -> None:
        return None

    async def new(self: Any) -> Any:
        return OrderBook(f"capacity-{os.getpid()}")

    BookStore.save, BookStore.load = kept, new  # type: ignore[method-assign]  # on purpose


def _impatient() -> None:
    """A machine that has not come after half a second is ordered again, whatever became of it."""
    from cotide_operator.provisioning.ordering import Ordering

    turn = Ordering.turn

    async def turned(self: Any, wanted: Any, nodes: Any, now: float, *those_not_counted: Any) -> None:
        await self.read()
        young = tuple(order for order in self._book.orders if now - order.since < 0.5)
        self._book = dataclasses.replace(self._book, orders=young)
        await turn(self, wanted, nodes, now, *those_not_counted)

    Ordering.turn = turned  # type: ignore[method-assign]  # on purpose


def _undrained() -> None:
    """Nodes that are too many are switched off as they are, the fullest first, and nobody looks who is on them."""
    from cotide_core.consolidation.removal.watching import Mark
    from cotide_operator.provisioning.controller import Provisioner

    async def freed(self: Any, drains: Any, nodes: Any, wanted: Any, now: float) -> None:
        for kind, count in wanted.items():
            full = sorted(nodes.open.get(kind, ()), key=drains._hands.load, reverse=True)
            for name in full[: max(len(full) - count, 0)]:
                await drains._hands.write(name, Mark.STOPPING, cordoned=True)

    async def nobody(self: Any, node: str) -> list[str]:
        return []

    Provisioner._free_or_keep = freed  # type: ignore[method-assign]  # on purpose
    Provisioner._pods_on = nobody  # type: ignore[method-assign]  # on purpose


def _anew() -> None:
    """Who takes over knows nothing of what was wanted a moment ago."""
    from cotide_core.provisioning.stabilization import Stabilization

    Stabilization.beginning = lambda seconds, _now, _there: Stabilization(seconds)  # type: ignore[method-assign]


_MUTANTS: dict[str, Callable[[], None]] = {
    "hasty": _hasty,
    "forgetful": _forgetful,
    "by the wall": _by_the_wall,
    "complacent": _complacent,
    "discreet": _discreet,
    "unfair": _unfair,
    "untracked": _untracked,
    "careless": _careless,
    "unfenced": _unfenced,
    "binds twice": _binds_twice,
    "binds again": _binds_again,
    "unmindful": _unmindful,
    "unmarked": _unmarked,
    "evicts again": _evicts_again,
    "promising": _promising,
    "never grants": _never_grants,
    "piecemeal": _piecemeal,
    "off the book": _off_the_book,
    "impatient": _impatient,
    "undrained": _undrained,
    "anew": _anew,
    **MACHINE_MUTANTS,
    **WORLD_MUTANTS,
}

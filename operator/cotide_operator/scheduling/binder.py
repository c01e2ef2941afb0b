"""Carries decisions out: posts bindings and evictions, and reports each outcome to the engine.

The loop passes the instructions and the annotations of each pod; reports go to the listeners. The states of one
binding::

    queued -> posted -> 201            bound; the watch confirms the assumption
       |        ^ |---- 404            the pod is gone
       |        | |---- 409, 429, 5xx, look at the pod: bound here -> bound; bound elsewhere or gone ->
       |        | |     silence        refused permanently; still waiting -> refused, retry
       |        `-'                    outcome unknown: the same binding once more
       `-> pod or node gone meanwhile  never posted

A binding without an answer may be carried out now or later. Its room stays reserved, and it stays posted, until the
outcome is known. A second post of the same binding is harmless, and its answer reveals the outcome of the first.

Namespaces take turns and share the requests in flight, as `fair_queue` describes. The loop pauses while the backlog is
large. Bindings of a namespace with slow answers do not count: a hanging webhook delays its own pods only.

Invariant: a pod is first posted only while the cache shows it unbound, alive and with the uid of the decision, and
never twice at a time. Each binding ends in exactly one report. `evictor` shows the states of an eviction, and
`volume_binder` the steps before a binding for a pod with waiting claims.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from cotide_core.errors import ClusterError, CotideError
from cotide_core.instructions import Bind, Evict, Instruction
from cotide_kube.answers import Answer, ApiError
from cotide_kube.backoff import Backoff
from cotide_kube.client import KubeClient
from cotide_operator.cache.decision_store import Decision
from cotide_operator.cache.fair_queue import FairQueue
from cotide_operator.cache.object_cache import ObjectCache, namespace_of_key
from cotide_operator.scheduling.evictor import Evictor, EvictReport
from cotide_operator.scheduling.volume_binder import VolumeBinder

_LOG = logging.getLogger(__name__)

ROOM_PER_BIND: Final = 2
"""Times the bindings in flight of one namespace: the loop pauses while so many wait or are in flight. It is the number
that all namespaces together may have in flight, so that no slot waits for a decision. Chosen: a decision that is made
too far ahead rests on old facts."""
SLOW_SECONDS: Final = 0.5
"""Wall seconds without an answer to a binding after which the loop ignores the backlog of its namespace.
Chosen: ten times what an API server on 2 cores takes in a burst, and a quarter of another tenant's longest wait."""
POLL_SECONDS: Final = 0.1
"""Wall seconds between two checks whether the loop may continue, or a rush is over. Chosen: a fifth of either bound."""
CALM_SECONDS: Final = 0.5
"""Wall seconds without an instruction after which a rush is over; chosen: pods that come twice a second or more often
are a rush."""

_BETWEEN: Final = Backoff(initial_seconds=0.2, cap_seconds=3.0)
"""Pauses before a binding of unknown outcome is posted again, each time after a look at the pod. Chosen: two requests a
second at first, then one in a while, and an outcome within 3 s of the end of a fault."""
_STOPPED: Final = Answer(0, "Stopped", "the operator is stopping")
_TRIPPED: Final = Answer(0, "InternalError", "the instruction could not be carried out; see the log")


class BindNote(msgspec.Struct, frozen=True, gc=False):
    """Data of a binding; made with the decision, returned with the report.

    Attributes
    ----------
    decision : what the decision store shows once the pod is bound.
    annotations : written on the pod in the same request.
    labels : written in the same request if the server accepts labels with a binding.
    cycle_seconds : the binding's share of the wall seconds of its decision cycle.
    """

    decision: Decision
    annotations: Mapping[str, str] = {}  # a struct copies it
    labels: Mapping[str, str] = {}
    cycle_seconds: float = 0.0


class BindReport(msgspec.Struct, frozen=True, gc=False):
    """Outcome of one binding."""

    bind: Bind
    answer: Answer
    bound: bool
    retry: bool
    """If not bound: whether the pod still waits and may be tried again."""
    wall_seconds: float
    note: BindNote | None = None
    """The note of the binding."""


class _Handed(msgspec.Struct, eq=False, gc=False):
    """A queued instruction; compared by identity."""

    namespace: str
    instruction: Bind | Evict
    note: BindNote | None


Report = BindReport | EvictReport
Listener = Callable[[Report], None]


class Binder:
    """Posts bindings with bounded concurrency.

    Parameters
    ----------
    client : KubeClient
    cache : ObjectCache
        Shows whether the facts of the decision still hold.
    listeners : sequence of callables
        Each receives each outcome, in this order and in the loop's thread.
    evictor : Evictor
        Carries evictions out.
    concurrency : int
        Bindings and evictions in flight of one namespace; all together may have twice as many.
    volumes : VolumeBinder, optional
        Prepares claims that wait for their pod's node; without it no claim is prepared.
    """

    def __init__(
        self,
        client: KubeClient,
        cache: ObjectCache,
        listeners: Sequence[Listener],
        evictor: Evictor,
        *,
        concurrency: int = 32,
        volumes: VolumeBinder | None = None,
    ) -> None:
        self._client = client
        self._cache = cache
        self._listeners = tuple(listeners)
        self._evictor = evictor
        self._volumes = volumes
        self._preparing: dict[str, tuple[asyncio.Task[None], Bind, BindNote | None]] = {}
        """Bindings that wait for volumes, by uid: they occupy no worker and delay no other decision."""
        self._concurrency = concurrency
        self._waiting: FairQueue[_Handed] = FairQueue(slots=2 * concurrency)
        self._since: dict[_Handed, float] = {}
        """Instructions in flight, to the loop's second at which they began; oldest first."""
        self._idle: deque[asyncio.Future[None]] = deque()
        self._under_way: set[str] = set()
        self._unknown: set[str] = set()
        """Uids of the pods of `unanswered`."""
        self._room = asyncio.Event()
        """Set by what ends while there is room."""
        self._drained = asyncio.Event()
        self._drained.set()
        self._closed = False
        self._asked = float("-inf")
        self._rng = random.Random()

    @property
    def busy(self) -> bool:
        """Whether anything waits or is in flight."""
        return self.backlog > 0

    @property
    def rushed(self) -> bool:
        """Whether an instruction waits or is in flight, or came a moment ago: more may come."""
        return self.busy or time.monotonic() - self._asked < CALM_SECONDS

    async def calm(self, seconds: float) -> None:
        """Return when no rush is on, or after ``seconds`` of the wall."""
        end = time.monotonic() + seconds
        while self.rushed and time.monotonic() < end:
            await asyncio.sleep(POLL_SECONDS)

    @property
    def unanswered(self) -> int:
        """Posted bindings of unknown outcome: the server may still carry them out."""
        return len(self._unknown)

    @property
    def backlog(self) -> int:
        """Number of instructions that are not carried out yet."""
        return self._waiting.in_all

    def carry_out(self, instructions: Sequence[Instruction], notes: Mapping[str, BindNote]) -> None:
        """Queue the instructions of one decision cycle; evictions that only help together are refused together.

        Parameters
        ----------
        instructions : sequence of Instruction
        notes : mapping
            Notes of the bindings, by the uid of the pod.
        """
        refused = {
            evict_report.evict.key: evict_report for evict_report in self._evictor.screen(_evictions(instructions))
        }
        for instruction in instructions:
            if isinstance(instruction, Evict) and instruction.key in refused:
                self._report(refused[instruction.key])
            elif isinstance(instruction, Bind):
                self.submit(instruction, notes.get(instruction.uid))
            elif isinstance(instruction, Evict):
                self.submit(instruction)

    def submit(self, instruction: Bind | Evict, note: BindNote | None = None) -> None:
        """Queue an instruction; a note holds what is written on the pod of a binding."""
        self._asked = time.monotonic()
        if self._closed:
            self._refuse(instruction, _STOPPED, note, retry=False)
            return
        if isinstance(instruction, Bind):
            if instruction.uid in self._under_way:
                # The engine gave up on a binding without an answer; no second one is posted before that answer.
                under_way = Answer(0, "UnderWay", "an earlier binding is not answered yet")
                self._refuse(instruction, under_way, note, retry=True)
                return
            self._under_way.add(instruction.uid)
        self._queue(instruction, note)

    def _queue(self, instruction: Bind | Evict, note: BindNote | None) -> None:
        namespace = namespace_of_key(instruction.key)
        self._waiting.add(_Handed(namespace, instruction, note), namespace)
        self._drained.clear()
        self._wake_worker()

    def _wake_worker(self) -> None:
        """Wake a worker if there is work with a free slot; each woken worker checks for more."""
        if not self._idle or self._waiting.turn() is None:
            return
        while self._idle:
            worker = self._idle.popleft()
            if not worker.done():
                worker.set_result(None)
                break

    async def room(self) -> None:
        """Return when the backlog is small enough to decide further; the backlog of slow namespaces does not count."""
        while self._quick_backlog() >= self._concurrency * ROOM_PER_BIND:
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._room.wait()

    def _quick_backlog(self) -> int:
        """Return the backlog except namespaces with a binding that is unanswered for `SLOW_SECONDS`."""
        slow: set[str] = set()
        before = asyncio.get_running_loop().time() - SLOW_SECONDS
        for handed, since in self._since.items():
            if since > before:
                break
            slow.add(handed.namespace)
        return self.backlog - sum(self._waiting.count(text) + self._waiting.held(text) for text in slow)

    def close(self) -> None:
        """Post nothing from now on; requests in flight continue."""
        self._closed = True
        for task, bind, waiting_note in list(self._preparing.values()):
            task.cancel()
            self._refuse(bind, _STOPPED, waiting_note, retry=False)
        self._preparing.clear()
        waiting = list(self._waiting)
        self._waiting.clear()
        for handed in waiting:
            self._refuse(handed.instruction, _STOPPED, handed.note, retry=False)
        self._settle()

    async def drain(self) -> None:
        """Close, and return when all requests in flight have an answer."""
        self.close()
        await self._drained.wait()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(2 * self._concurrency):
                group.create_task(self._work())

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while (handed := self._waiting.pop()) is None:
                turn = loop.create_future()
                self._idle.append(turn)
                await turn
            self._since[handed] = loop.time()
            self._wake_worker()
            instruction, note = handed.instruction, handed.note
            prepared = True
            try:
                if isinstance(instruction, Bind) and self._volumes is not None and self._volumes.concerns(instruction):
                    prepared = False
                    task = asyncio.create_task(self._prepare(self._volumes, instruction, note), name="volumes")
                    self._preparing[instruction.uid] = task, instruction, note
                    await asyncio.sleep(0)  # it begins before a worker looks at the volumes of more pods
                elif isinstance(instruction, Bind):
                    await self._bind(instruction, note)
                else:
                    self._report(await self._evictor.carry_out(instruction))
            except CotideError:
                raise
            except Exception as error:  # noqa: BLE001 - one faulty pod must not stop all other bindings
                self._cache.quarantine_object("pods", instruction.key, "binder", error)
                self._unknown.discard(instruction.uid)
                self._refuse(instruction, _TRIPPED, note, retry=True)
            finally:
                self._waiting.release(handed.namespace)
                del self._since[handed]
                if prepared:
                    self._under_way.discard(instruction.uid)
                self._settle()

    async def _prepare(self, volumes: VolumeBinder, bind: Bind, note: BindNote | None) -> None:
        """Prepare the volumes of a binding, which then takes its turn again."""
        try:
            refused = await volumes.prepare(bind)
        except Exception as error:  # noqa: BLE001 - one faulty pod must not stop all other bindings
            self._cache.quarantine_object("pods", bind.key, "volume binder", error)
            refused = _TRIPPED, True
        del self._preparing[bind.uid]
        if refused is None:
            self._queue(bind, note)
            return
        self._under_way.discard(bind.uid)
        self._refuse(bind, refused[0], note, retry=refused[1])

    def _settle(self) -> None:
        if self.backlog < self._concurrency * ROOM_PER_BIND:
            self._room.set()
        if not self.backlog:
            self._drained.set()

    def _report(self, report: Report) -> None:
        for listener in self._listeners:
            listener(report)

    def _refuse(self, instruction: Bind | Evict, answer: Answer, note: BindNote | None, *, retry: bool) -> None:
        if isinstance(instruction, Bind):
            self._report(BindReport(instruction, answer, bound=False, retry=retry, wall_seconds=0.0, note=note))
        else:
            self._report(EvictReport(instruction, answer))

    async def _bind(self, bind: Bind, note: BindNote | None) -> None:
        stale = self._stale(bind)
        if stale is not None:
            answer, retry = stale
            self._refuse(bind, answer, note, retry=retry)
            return
        annotations, labels = (note.annotations, note.labels) if note is not None else ({}, {})
        namespace, _, name = bind.key.partition("/")
        started = time.perf_counter()
        failures = 0
        self._unknown.add(bind.uid)
        while True:
            answer = await self._client.bind(namespace, name, bind.uid, bind.node, annotations, labels)
            fate = await self._fate(bind, answer, last=failures > 0 and answer.code != 0)
            if fate is not None:
                break
            failures += 1
            await asyncio.sleep(_BETWEEN.wait_seconds(failures, self._rng))
            if self._closed or bind.node not in self._cache.nodes:
                break
        if fate is not None or not self._closed:
            self._unknown.discard(bind.uid)
        bound, retry = fate or (False, True)
        self._report(BindReport(bind, answer, bound, retry, time.perf_counter() - started, note))

    async def _fate(self, bind: Bind, answer: Answer, *, last: bool) -> tuple[bool, bool] | None:
        """Return the meaning of an answer (bound here, worth another try), or None while the outcome is unknown.

        With ``last`` a pod that is seen waiting counts as waiting: the server has answered after the attempt that may
        still be in flight.
        """
        if answer.ok:
            return True, False
        if answer.code == 404:
            return False, False
        found = await self._look(bind)
        if not answer.uncertain:
            return found or (False, True)
        if found == (False, True) and not last:
            return None
        return found

    def _stale(self, bind: Bind) -> tuple[Answer, bool] | None:
        """Return why a decision is void before the post, or None; the API server does not check that a node exists."""
        pod = self._cache.pods.get(bind.key)
        if pod is None or pod.metadata.uid != bind.uid or pod.metadata.deletion_timestamp is not None:
            return Answer(404, "NotFound", f"pod {bind.key} is gone"), False
        if pod.spec.node_name:
            return Answer(409, "Conflict", f"pod {bind.key} is on {pod.spec.node_name}"), False
        if bind.node not in self._cache.nodes:
            return Answer(404, "NotFound", f"node {bind.node} is gone"), True
        return None

    async def _look(self, bind: Bind) -> tuple[bool, bool] | None:
        """Read a pod from the API server; returns (bound here, worth another try), or None without an answer."""
        namespace, _, name = bind.key.partition("/")
        try:
            pod: dict[str, Any] = await self._client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        except ApiError as error:
            return (False, False) if error.status == 404 else None
        except ClusterError:
            return None
        metadata, node = pod.get("metadata") or {}, (pod.get("spec") or {}).get("nodeName")
        if not metadata.get("uid"):  # an answer without content
            return None
        if metadata.get("uid") != bind.uid:
            return False, False
        if node == bind.node:  # also a pod that is ending: it holds its room until it is gone
            return True, False
        return False, not (node or metadata.get("deletionTimestamp"))


def _evictions(instructions: Sequence[Instruction]) -> list[Evict]:
    return [instruction for instruction in instructions if isinstance(instruction, Evict)]

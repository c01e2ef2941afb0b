"""`Ordering`: the operator's copy of the book of node orders, and its requests to the actuator.

Driven by `controller` at each look::

    wanted, nodes -> OrderBook.step -> book written to its ConfigMap -> actuator asked -> answers written

A request is written into the book before it is sent. So after a process is killed at any point, the next one sends the
same request again. A request without an answer is repeated, with a pause between attempts. Invariants: only requests
that the book in the cluster holds are sent. Where the book can't be read or written, nothing is sent. After failed
boots of a type, its orders pause for a time that doubles.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final

from cotide_core.errors import ClusterError
from cotide_core.provisioning.node_orders import (
    Action,
    Answer,
    NodeInstruction,
    NodeOrder,
    NodeView,
    OrderBook,
    Stage,
)
from cotide_operator.config.provisioning_settings import ActuatorSettings, ProvisioningSettings
from cotide_operator.provisioning.actuators import NodeActuator
from cotide_operator.provisioning.carrying import BookStore

_LOG = logging.getLogger(__name__)

AT_ONCE: Final = 16
"""Requests to an actuator at one time; chosen: a webhook or the API behind it must not be flooded."""
LONGEST_RETRY_SECONDS: Final = 3600.0
"""Longest pause in seconds after failed boots of a type; chosen."""

MAX_DOUBLED: Final = 12
"""Most doublings of a pause: the shortest pause has reached the longest by then, and an unbounded power overflows."""

_NONE: Final[Mapping[str, str]] = {}

Reporter = Callable[[str, NodeOrder, str], object]
"""Receives ``NodeOrdered``, ``NodeCame``, ``NodeFailed``, ``NodeLate`` or ``NodeCancelled``, the order and a
sentence."""


class Ordering:
    """One term of leadership.

    Parameters
    ----------
    report : receives the outcome of each order.
    permit : raises `ClusterError` when requests are no longer permitted.
    """

    def __init__(
        self,
        store: BookStore,
        actuator: NodeActuator,
        settings: ProvisioningSettings,
        report: Reporter,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        permit: Callable[[], object] = lambda: None,
    ) -> None:
        self._permit = permit
        self._store, self._actuator, self._settings, self._report = store, actuator, settings, report
        self._monotonic = monotonic
        self._boot = {kind.name: kind.boot_seconds for kind in settings.machine_types}
        self._book: OrderBook | None = None
        self._reported: OrderBook | None = None
        """The book up to which all outcomes are reported; it is older after a write that was carried out without an
        answer."""
        self._asked: dict[tuple[Action, str], float] = {}
        self._failed: dict[str, tuple[int, float]] = {}
        """By type: consecutive failed boots, and the time until which the type is not ordered."""
        self._stopped: frozenset[str] = frozenset()
        """Nodes with a stop that the actuator has confirmed to this leader: a new leader asks once more."""

    @property
    def orders(self) -> tuple[NodeOrder, ...]:
        """Return the open orders, as far as the book was read."""
        return () if self._book is None else self._book.orders

    async def read(self) -> None:
        """Read the book unless it is loaded.

        Raises
        ------
        InputError, ClusterError
            When the book can't be read: then nothing may be ordered.
        """
        if self._book is None:
            self._book = await self._store.load()
        if self._reported is None:
            self._reported = self._book

    @property
    def cordoned(self) -> frozenset[str]:
        """Return the nodes that `cotide capacity --apply` left cordoned and that may be uncordoned."""
        book = self._known()
        return frozenset((*book.draining, *book.opening)) - frozenset(book.stopping)

    async def opened(self, nodes: Set[str]) -> None:
        """Record in the book that these nodes are no longer cordoned."""
        await self._write(self._known().opened(nodes))

    def coming(self, nodes: Sequence[NodeView], now: float, lost: Mapping[str, str] = _NONE) -> dict[str, list[float]]:
        """Return by type the seconds until each ordered machine should be up."""
        came = {*(node.order for node in nodes), *lost}
        found: dict[str, list[float]] = {}
        for order in self.orders:
            if order.id in came:
                continue
            found.setdefault(order.kind, []).append(self._boot.get(order.kind, 0.0) - (now - order.since))
        return found

    def barred(self, now: float) -> frozenset[str]:
        """Return the types that are not ordered now, since their last machines did not boot."""
        return frozenset(kind for kind, (_, until) in self._failed.items() if now < until)

    async def turn(
        self,
        wanted: Mapping[str, int],
        nodes: Sequence[NodeView],
        now: float,
        lost: Mapping[str, str] = _NONE,
        closed: Mapping[str, str] = _NONE,
    ) -> None:
        """Order missing machines, cancel surplus orders, and send both to the actuator.

        ``wanted`` holds the types with nodes that are ordered one by one; a barred type gets no new order. ``lost``:
        nodes that came and are not among ``nodes``, by order: their orders do not wait. ``closed``: the same for nodes
        that a person holds cordoned: see `OrderBook.step`.

        Raises
        ------
        InputError, ClusterError
            When the book can't be read or written.
        """
        await self.read()
        before = self._known()
        there: dict[str, int] = {}
        for node in nodes:
            there[node.kind] = there.get(node.kind, 0) + 1
        for order in before.orders:
            if order.id in lost:
                continue
            there[order.kind] = there.get(order.kind, 0) + (order.stage is Stage.ASKED)
        barred = self.barred(now)
        least = {kind: min(count, there.get(kind, 0)) if kind in barred else count for kind, count in wanted.items()}
        book, todo = before.step(
            least, nodes, now, self._settings.boot_deadline_seconds,
            drains=False, arrived=lost.keys(), closed=closed.keys(),
        )  # fmt: skip
        await self._write(book)
        came = {**lost, **closed, **{node.order: node.name for node in nodes if node.order is not None}}
        self._emit(self._reported or before, book, came, now)
        self._reported = book
        await self._ask(todo, now)
        self._reported = self._known()

    async def stop(self, nodes: Iterable[NodeView]) -> dict[str, Answer]:
        """Request the stop of the machines of drained and marked nodes; return the new answers."""
        due = self._due([NodeInstruction(Action.STOP, node.name, node.kind, node.uid) for node in nodes])
        answers = {key.subject: answer for key, answer in (await self._send(due)).items()}
        going = {name for name, answer in answers.items() if answer in (Answer.ACCEPTED, Answer.GONE)}
        self._stopped = (self._stopped - answers.keys()) | going
        return answers

    def stopped(self, nodes: Set[str]) -> frozenset[str]:
        """Return the present nodes with a confirmed stop, and forget the nodes that are gone."""
        self._stopped &= nodes
        return self._stopped

    def due_to_stop(self, node: NodeView) -> bool:
        """Whether it is time to request the stop of a machine (again)."""
        return bool(self._due([NodeInstruction(Action.STOP, node.name, node.kind, node.uid)]))

    def would(
        self,
        wanted: Mapping[str, int],
        nodes: Sequence[NodeView],
        now: float,
        lost: Mapping[str, str] = _NONE,
        closed: Mapping[str, str] = _NONE,
    ) -> tuple[NodeInstruction, ...]:
        """Return the instructions that a turn would send; changes nothing."""
        book = self._book or OrderBook()
        deadline = self._settings.boot_deadline_seconds
        return book.step(wanted, nodes, now, deadline, drains=False, arrived=lost.keys(), closed=closed.keys())[1]

    def _known(self) -> OrderBook:
        assert self._book is not None  # noqa: S101 - for mypy: read before
        return self._book

    async def _write(self, book: OrderBook) -> None:
        if book == self._book:
            return
        try:
            await self._store.save(book)
        except ClusterError:
            self._book = None  # the written state is unknown: the next turn reads it
            raise
        self._book = book

    def _emit(self, before: OrderBook, book: OrderBook, came: Mapping[str, str], now: float) -> None:
        old, new = ({order.id: order for order in which.orders} for which in (before, book))
        for order in before.orders:
            after = new.get(order.id)
            if after is None and order.id in came:
                self._failed.pop(order.kind, None)
                self._report("NodeCame", order, f"{came[order.id]} came after {now - order.since:.0f} s")
            elif after is not None and after.stage is Stage.CANCELLING and order.stage is Stage.ASKED:
                waited = now - order.since
                if waited > self._settings.boot_deadline_seconds:
                    self._count_failure(order.kind, now)
                    self._report("NodeLate", order, f"no node in {waited:.0f} s: the order is cancelled")
                else:
                    self._report("NodeCancelled", order, "the machine is no longer needed")
        for order in book.orders:
            if order.id not in old:
                self._report("NodeOrdered", order, f"a machine of type {order.kind} is requested")

    async def _ask(self, todo: Iterable[NodeInstruction], now: float) -> None:
        asked = list(todo)
        living = {(node_instruction.action, node_instruction.subject) for node_instruction in asked}
        pause = self._monotonic() - self._chosen.ask_again_seconds
        self._asked = {key: at for key, at in self._asked.items() if key in living or at > pause}
        book = self._known()
        for node_instruction, answer in (await self._send(self._due(asked))).items():
            order = next((other for other in book.orders if other.id == node_instruction.subject), None)
            if order is not None and answer is Answer.FAILED and node_instruction.action is Action.START:
                self._count_failure(node_instruction.kind, now)
                self._report("NodeFailed", order, "the actuator reports that it can't be started")
            book = book.answered(node_instruction.subject, answer)
        await self._write(book)

    def _due(self, todo: Sequence[NodeInstruction]) -> list[NodeInstruction]:
        now, pause = self._monotonic(), self._chosen.ask_again_seconds
        asked = {
            node_instruction: self._asked.get((node_instruction.action, node_instruction.subject), float("-inf"))
            for node_instruction in todo
        }
        due = [node_instruction for node_instruction in todo if now - asked[node_instruction] >= pause]
        # The longest waiting orders come first: where answers take as long as the pause, the last would never be sent.
        return sorted(due, key=asked.__getitem__)[:AT_ONCE]

    async def _send(self, todo: Sequence[NodeInstruction]) -> dict[NodeInstruction, Answer]:
        if todo:
            self._permit()  # a machine can't check whether its sender still leads
        answers = await asyncio.gather(*(self._answer(node_instruction) for node_instruction in todo))
        for node_instruction in todo:
            self._asked[node_instruction.action, node_instruction.subject] = self._monotonic()
        return dict(zip(todo, answers, strict=True))

    async def _answer(self, one: NodeInstruction) -> Answer:
        try:
            return await self._actuator.do(one)
        except Exception:  # noqa: BLE001 - an actuator that trips over one order must not lose the answers to others
            _LOG.exception("the actuator failed at %s %s, which is asked again", one.action.value, one.subject)
            return Answer.UNKNOWN

    def _count_failure(self, kind: str, now: float) -> None:
        times, until = self._failed.get(kind, (0, float("-inf")))
        if now < until:  # it was ordered before the type began to rest: the same trouble, not the next
            return
        pause = min(self._chosen.retry_seconds * 2.0 ** min(times, MAX_DOUBLED), LONGEST_RETRY_SECONDS)
        self._failed[kind] = (times + 1, now + pause)

    @property
    def _chosen(self) -> ActuatorSettings:
        chosen = self._settings.actuator
        assert chosen is not None  # noqa: S101 - for mypy: settings ask for one where nodes are switched
        return chosen

"""The book of node orders: turns a plan's counts into orders, and starts no node twice for one need.

Called once a step by the code that carries a plan out, with the state of the cluster. Its instructions go to a node
actuator, which may be slow, answer twice or never. A need is an order with its own id, written down before it is sent.
The node that comes carries that id, so a repeated request is harmless::

    need -> ASKED --node with the id appears--------------------> fulfilled (leaves the book)
              |  asked again each step until it is answered        ^
              |--actuator reports failure--> leaves the book       | a late boot
              `--no node by the deadline, or not wanted--> CANCELLING --the actuator reports it gone--> leaves the book

A replacement is ordered only when the actuator has confirmed that the first is gone: an order that is being cancelled
still counts as a node to come. Machines go by draining: cordoned, never while an online service runs there, stopped
when empty, taken back when they are needed again. Invariants: orders and nodes of a kind together never exceed what is
wanted by an order of ours. A node with an online pod, or one that its owner keeps, is never drained. The operator uses
consolidation to drain its nodes; there the book drains none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from cotide_core.errors import InputError

NO_KIND: Final = "no known type"
"""Kind of a node after its own kind was forgotten."""
_NO_OTHERS: Final[Mapping[str, bool]] = {}


class Stage(StrEnum):
    """The stage of an order."""

    ASKED = "asked"
    CANCELLING = "cancelling"


class Answer(StrEnum):
    """An actuator's answer about an order."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    GONE = "gone"
    UNKNOWN = "unknown"
    """No answer in time, or an unclear one: the order is sent again."""


class Action(StrEnum):
    """What to do."""

    START = "start"
    CANCEL = "cancel"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    STOP = "stop"


class NodeInstruction(NamedTuple):
    """One action: ``subject`` is an order's id for START and CANCEL, a node's name for the others.

    ``uid``: of the node for STOP. A machine that comes again keeps its name, and is stopped again.
    """

    action: Action
    subject: str
    kind: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node in the cluster.

    Attributes
    ----------
    order : id of the order that it came from; None for one that needed no order.
    pods, online_pods : pods on it other than those of DaemonSets, and those of online services among them.
    freed : consolidation has emptied and cordoned it, for any taker.
    uid : of the node object; empty where it is not needed.
    kept : whether its owner or its role forbids to take it out of service.
    """

    name: str
    kind: str
    order: str | None = None
    cordoned: bool = False
    pods: int = 0
    online_pods: int = 0
    freed: bool = False
    uid: str = ""
    kept: bool = False

    @property
    def may_drain(self) -> bool:
        """Whether it may be cordoned to be stopped."""
        return not self.online_pods and not self.kept


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """One need."""

    id: str
    kind: str
    since: float
    stage: Stage = Stage.ASKED
    accepted: bool = False


class Lowering(NamedTuple):
    """Requested replicas and the version that was read: with another version the request is too late."""

    replicas: int
    version: str


@dataclass(frozen=True, slots=True)
class OrderBook:
    """All that must outlive a restart.

    Attributes
    ----------
    name : of the book, in every id, so that two clusters at one actuator don't meet.
    issued : orders so far; ids are never used again.
    draining : names of nodes that we cordoned to stop them.
    opening : names of nodes that we cordoned and that are to take pods again: requested until it is done, since a
        process that ends before it would leave the cordon for ever.
    lowering : by API path of the object with the replicas that make machines, the requests without an answer.
    stopping : draining nodes with a machine that has the order to stop: it may be off at any moment, so they are not
    taken back.
    """

    name: str = "capacity"
    issued: int = 0
    orders: tuple[NodeOrder, ...] = ()
    draining: tuple[str, ...] = ()
    opening: tuple[str, ...] = ()
    stopping: tuple[str, ...] = ()
    lowering: tuple[tuple[str, Lowering], ...] = ()

    def going(self, nodes: Iterable[str]) -> OrderBook:
        """Return the book with these nodes ordered to stop; it is written down before the order is sent."""
        return replace(self, stopping=tuple(dict.fromkeys((*self.stopping, *nodes))))

    def stays(self, node: str) -> OrderBook:
        """Return the book after the actuator has failed to stop a node: it may be taken back."""
        return replace(self, stopping=tuple(name for name in self.stopping if name != node))

    def opened(self, nodes: Set[str]) -> OrderBook:
        """Return the book without the cordons of these nodes."""
        draining = tuple(name for name in self.draining if name not in nodes)
        opening = tuple(name for name in self.opening if name not in nodes)
        return replace(self, draining=draining, opening=opening)

    def answered(self, order: str, answer: Answer) -> OrderBook:
        """Return the book after an answer; one to an order that is not in it changes nothing."""
        kept = []
        for node_order in self.orders:
            if node_order.id == order:
                if answer is Answer.FAILED or (answer is Answer.GONE and node_order.stage is Stage.CANCELLING):
                    continue
                kept.append(replace(node_order, accepted=node_order.accepted or answer is Answer.ACCEPTED))
            else:
                kept.append(node_order)
        return replace(self, orders=tuple(kept))

    def step(
        self,
        wanted: Mapping[str, int],
        nodes: Sequence[NodeView],
        now: float,
        boot_deadline_seconds: float,
        *,
        drains: bool = True,
        arrived: Set[str] = frozenset(),
        closed: Set[str] = frozenset(),
        others: Mapping[str, bool] = _NO_OTHERS,
    ) -> tuple[OrderBook, tuple[NodeInstruction, ...]]:
        """Return the book and the actions for the wanted count of each kind; unnamed kinds are left as they are.

        The book must be written down before any action. Without ``drains`` another component cordons and stops nodes,
        with better reasons: the book only orders, and cancels what has not come. ``arrived``: ids of orders with nodes
        that exist but are not among ``nodes``, since they can't be counted on. ``closed``: ids among them of nodes that
        others have cordoned. These are waited for as long as a boot may take, since a booting node may be opened when
        it is done. A node that has joined is neither late nor to be cancelled. ``others``: nodes of no known kind, and
        whether each is cordoned. A node that was being emptied is opened, unless it has the order to stop.
        """
        came = {node.order for node in nodes if node.order is not None} | arrived
        orders = [
            replace(order, stage=Stage.CANCELLING) if now - order.since > boot_deadline_seconds else order
            for order in self.orders
            if order.id not in came
        ]
        orders = _without_joined(orders, closed)
        by_name = {node.name: node for node in nodes}
        # A node with the order to stop that is open again was opened by others: it is no longer ours.
        stopping = {name for name in self.stopping if name in by_name and by_name[name].cordoned} if drains else set()
        taken = set(self.stopping) - stopping
        draining = [name for name in self.draining if name in by_name and name not in taken] if drains else []
        opening = [name for name in self.opening if name in by_name and by_name[name].cordoned] if drains else []
        # A freed node goes, or is opened, as if we had emptied it.
        ours = {*draining, *opening, *taken}
        draining += [node.name for node in nodes if drains and node.freed and node.cordoned and node.name not in ours]
        left = [name for name in dict.fromkeys((*self.opening, *self.draining)) if others.get(name)] if drains else []
        gone = [name for name in left if name in self.stopping]
        issued, held = self.issued, set[str]()
        for name in list(draining):
            if not by_name[name].may_drain and name not in stopping:
                draining.remove(name)
                opening.append(name)
        for kind, count in sorted(wanted.items()):
            there = [node for node in nodes if node.kind == kind and node.name not in draining]
            coming = [order for order in orders if order.kind == kind]
            missing = count - len(there) - len(coming)
            back = [name for name in draining if by_name[name].kind == kind and name not in stopping]
            for name in back[: max(missing, 0)]:
                draining.remove(name)
                opening.append(name)
                missing -= 1
            for _ in range(max(missing, 0)):
                issued += 1
                orders.append(NodeOrder(f"{self.name}-{kind}-{issued}", kind, now))
            surplus = len(there) + sum(node_order.stage is Stage.ASKED for node_order in coming) - count
            if surplus > 0:
                orders, surplus = _cancelled(orders, kind, surplus)
                draining.extend(node.name for node in (_leaving(there, surplus) if drains else ()))
            held |= _held_back(orders, kind, count - len(there))
        orders = _without_joined(orders, closed)
        opening = [name for name in opening if name not in draining]
        opening += [name for name in left if name not in gone]
        kinds = {name: node.kind for name, node in by_name.items()}
        todo = [NodeInstruction(Action.UNCORDON, name, kinds.get(name, NO_KIND)) for name in opening]
        todo += _sent([order for order in orders if order.id not in held], draining, by_name)
        after = replace(self, issued=issued, orders=tuple(orders))
        if drains:
            kept = tuple(name for name in self.stopping if name in stopping or name in gone)
            after = replace(after, draining=(*draining, *gone), opening=tuple(opening), stopping=kept)
        return after, tuple(todo)

    def as_data(self) -> dict[str, Any]:
        """Return it as plain values, for a file or a ConfigMap."""
        orders = [[order.id, order.kind, order.since, order.stage.value, order.accepted] for order in self.orders]
        cordons = {"draining": list(self.draining), "opening": list(self.opening), "stopping": list(self.stopping)}
        lowering = {"lowering": {path: list(asked) for path, asked in self.lowering}} if self.lowering else {}
        return {"name": self.name, "issued": self.issued, "orders": orders, **cordons, **lowering}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> OrderBook:
        """Read what `as_data` gave.

        Raises
        ------
        InputError
            When it is something else: an unreadable book must not count as an empty one.
        """
        try:
            orders = tuple(
                NodeOrder(str(name), str(kind), float(since), Stage(stage), bool(accepted))
                for name, kind, since, stage, accepted in data["orders"]
            )
            named = (data["draining"], data.get("opening", ()), data.get("stopping", ()))
            draining, opening, stopping = (tuple(map(str, names)) for names in named)
            lowering = tuple(
                (str(path), Lowering(int(replicas), str(version)))
                for path, (replicas, version) in data.get("lowering", {}).items()
            )
            return cls(str(data["name"]), int(data["issued"]), orders, draining, opening, stopping, lowering)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"the book of node orders can't be read: {error}", field="orders") from error


def _without_joined(orders: Iterable[NodeOrder], closed: Set[str]) -> list[NodeOrder]:
    """Return the orders without the cancelled ones that have joined nevertheless."""
    return [order for order in orders if order.stage is Stage.ASKED or order.id not in closed]


def _cancelled(orders: list[NodeOrder], kind: str, surplus: int) -> tuple[list[NodeOrder], int]:
    """Return the orders with up to ``surplus`` of a kind cancelled, the newest first, and the remaining surplus."""
    kept = list(orders)
    for index in reversed(range(len(kept))):
        if surplus and kept[index].kind == kind and kept[index].stage is Stage.ASKED:
            kept[index] = replace(kept[index], stage=Stage.CANCELLING)
            surplus -= 1
    return kept, surplus


def _held_back(orders: Iterable[NodeOrder], kind: str, room: int) -> set[str]:
    """Return unsent orders to hold back: a cancelled order may still bring a node in their place."""
    held = set()
    room -= sum(order.kind == kind and order.stage is Stage.CANCELLING for order in orders)
    for order in orders:
        if order.kind == kind and order.stage is Stage.ASKED:
            room -= 1
            if room < 0:
                held.add(order.id)
    return held


def _leaving(there: Iterable[NodeView], surplus: int) -> list[NodeView]:
    """Return nodes to drain: the permitted ones, the emptiest first."""
    able = sorted((node for node in there if node.may_drain), key=lambda node: (node.pods, node.name))
    return able[: max(surplus, 0)]


def _sent(
    orders: Iterable[NodeOrder], draining: Iterable[str], by_name: Mapping[str, NodeView]
) -> list[NodeInstruction]:
    """Return the instructions of each step, until the cluster shows them done."""
    todo = []
    for order in orders:
        if order.stage is Stage.CANCELLING:
            todo.append(NodeInstruction(Action.CANCEL, order.id, order.kind))
        elif not order.accepted:
            todo.append(NodeInstruction(Action.START, order.id, order.kind))
    for name in draining:
        node = by_name[name]
        if not node.cordoned:
            todo.append(NodeInstruction(Action.CORDON, name, node.kind))
        elif not node.pods:
            todo.append(NodeInstruction(Action.STOP, name, node.kind, node.uid))
    return todo

"""Carries out a plan's first step: one turn of the book of orders, written before anything is sent.

Called by `cotide capacity --apply`, once a step. Flow: book from its ConfigMap -> `OrderBook.step` -> the new book
written -> instructions sent -> answers written. Invariants: the book that the next turn reads holds every instruction
that was sent, whenever this process ends. When another process has changed the book meanwhile, the write is refused and
nothing is sent. Directly before each stop, the API server confirms that the node is still cordoned, unprotected and
empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from secrets import token_hex
from typing import Any, Final

import orjson

from cotide_core.errors import ClusterError, InputError
from cotide_core.provisioning.node_orders import Action, Answer, NodeInstruction, NodeView, OrderBook
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.plain_objects import OddObjectError, checked
from cotide_operator.apis.names import CONSOLIDATION_MARK
from cotide_operator.provisioning.actuators import NodeActuator
from cotide_operator.provisioning.cluster_view import is_kept, needs_node

CONFIG_MAP: Final = "cotide-node-orders"
KEY: Final = "book.json"
_CAN_NOT_STOP: Final = (Action.STOP, Answer.FAILED)


class BookStore:
    """The book in a ConfigMap; writes carry the resourceVersion that was read, so that two writers do not overwrite
    each other.

    Parameters
    ----------
    namespace : where the ConfigMap is.
    mark : makes the prefix that distinguishes a new book's orders from those of any other book; random by default. An
        actuator answers a repeated id with "known": without the prefix, no machine would come after a person has
        deleted the ConfigMap.
    """

    def __init__(self, client: KubeClient, namespace: str, mark: Callable[[], str] = lambda: token_hex(3)) -> None:
        self._client, self._mark = client, mark
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._stored: dict[str, Any] | None = None

    async def load(self) -> OrderBook:
        """Return the book, or an empty one when none exists.

        Raises
        ------
        InputError
            When the book can't be read.
        """
        try:
            self._stored = dict(await self._client.get(f"{self._collection}/{CONFIG_MAP}"))
        except ApiError as error:
            if error.status != 404:
                raise
            self._stored = None
            return OrderBook(f"{OrderBook().name}-{self._mark()}")
        try:
            return OrderBook.from_data(orjson.loads((self._stored.get("data") or {})[KEY]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"ConfigMap {CONFIG_MAP} has no valid book of node orders: {error}", field=KEY) from error

    async def save(self, book: OrderBook) -> None:
        """Write the book.

        Raises
        ------
        ClusterError
            When another process has written meanwhile.
        """
        data = {KEY: orjson.dumps(book.as_data()).decode()}
        try:
            if self._stored is None:
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": data}
                self._stored = dict(await self._client.create(self._collection, body))
            else:
                body = {**self._stored, "data": data}
                self._stored = dict(await self._client.replace(f"{self._collection}/{CONFIG_MAP}", body))
        except ApiError as error:
            if error.status == 404 and self._stored is not None:
                # A person has deleted it: this process knows the open orders, and forgetting them would order them
                # twice.
                self._stored = None
                await self.save(book)
                return
            if error.status == 409:
                raise ClusterError("another process writes the book of node orders: nothing was sent") from error
            raise


async def carry_out(
    store: BookStore,
    client: KubeClient,
    actuator: NodeActuator,
    wanted: Mapping[str, int],
    nodes: Sequence[NodeView],
    now: float,
    *,
    boot_deadline_seconds: float,
    closed: Set[str] = frozenset(),
    others: Mapping[str, bool] | None = None,
    dry_run: bool = False,
) -> tuple[NodeInstruction, ...]:
    """Take one turn; return the instructions that were sent, or in a dry run would be sent.

    It takes many arguments, because a turn reads nothing by itself except the nodes that it is about to stop.
    ``wanted`` to ``others`` are as `OrderBook.step` takes them.

    Raises
    ------
    InputError, ClusterError
        When the book can't be read or written; or when nodes can't be cordoned or opened, after the rest was sent.
    """
    before = await store.load()
    book, todo = before.step(wanted, nodes, now, boot_deadline_seconds, closed=closed, others=others or {})
    if dry_run:
        return todo
    todo = tuple(
        [
            node_instruction
            for node_instruction in todo
            if node_instruction.action is not Action.STOP or await _still_empty(client, node_instruction.subject)
        ]
    )
    book = book.going(node_instruction.subject for node_instruction in todo if node_instruction.action is Action.STOP)
    await store.save(book)
    sent: list[NodeInstruction] = []
    refused: list[str] = []
    for instruction in todo:
        action, subject = instruction[:2]
        if action in (Action.CORDON, Action.UNCORDON):
            cordon = action is Action.CORDON
            try:
                await (cordon_node if cordon else open_node)(client, subject)
            except ApiError as error:  # of one node: wanted machines still come
                if error.status != 404:  # the node is gone, and its cordon with it
                    refused.append(str(error))
                    continue
            book = book if cordon else book.opened({subject})
        elif action is Action.STOP and not await _still_empty(client, subject):  # the answers of other nodes took time
            book = book if subject in before.stopping else book.stays(subject)
            continue
        else:
            answer = await actuator.do(instruction)
            book = book.stays(subject) if (action, answer) == _CAN_NOT_STOP else book.answered(subject, answer)
        sent.append(instruction)
    await store.save(book)
    if refused:
        raise ClusterError(f"{'; '.join(refused)}; the rest was sent")
    return tuple(sent)


async def cordon_node(client: KubeClient, node: str) -> None:
    """Cordon a node: no new pods come to it."""
    await client.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})


async def open_node(client: KubeClient, node: str) -> None:
    """Uncordon a node, and remove the record that it was freed."""
    body = {"metadata": {"annotations": {CONSOLIDATION_MARK: None}}, "spec": {"unschedulable": False}}
    await client.patch(f"/api/v1/nodes/{node}", body)


async def _still_empty(client: KubeClient, node: str) -> bool:
    """Whether a node is cordoned, unprotected and without pods at this moment: the view is as old as the planning
    time."""
    found = await client.list("/api/v1/nodes", {"fieldSelector": f"metadata.name={node}"})
    if not found or not (found[0].get("spec") or {}).get("unschedulable") or is_kept(found[0]):
        return False
    pods = await client.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
    return not any(map(_holds, pods))


def _holds(pod: Any) -> bool:
    """Whether a pod needs its node; an unreadable pod may need it."""
    try:
        return needs_node(checked(pod, PodObject, "pod"))
    except OddObjectError:
        return True

"""Keys of many tenants wait in one queue and take turns, so that a crowd of one tenant delays no other.

Everything that serves all tenants uses it: changed objects, bindings, low-priority writes, the controllers, queries,
bodies of requests. The tenant of a key is mostly its namespace. Each tenant has its own line, first come, first served.
The lines take turns. Work that another server answers holds a slot until its answer: a tenant may hold as many slots as
are free. So a slot stays free for others, however slow the answers to one tenant are.

Invariants: a key waits once. Between two turns of a tenant, every other waiting tenant with a free share has one. The
cost to add, drop or take a key does not depend on the number of keys and tenants: only tenants that hold their share of
the slots are skipped, and these are fewer than the slots.

Source of the share: Choudhury and Hahne 1998, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", with
a factor of 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_UNBOUNDED: Final = sys.maxsize


class _Slots:
    """Slots that the tenants of one or several queues hold."""

    __slots__ = ("each", "held", "in_all", "limit", "total")

    def __init__(self, total: int | None, each: int | None) -> None:
        self.total = _UNBOUNDED if total is None else total
        self.each = _UNBOUNDED if each is None else each
        self.in_all = 0
        self.held: dict[str, int] = {}
        """Held slots by tenant; no zeros."""
        self.limit = min(self.total, self.each)
        """A tenant takes a slot only while it holds fewer than this."""

    def take(self, tenant: str) -> None:
        self.held[tenant] = self.held.get(tenant, 0) + 1
        self.in_all += 1
        self.limit = min(self.total - self.in_all, self.each)

    def release(self, tenant: str) -> None:
        left = self.held.pop(tenant) - 1
        if left:
            self.held[tenant] = left
        self.in_all -= 1
        self.limit = min(self.total - self.in_all, self.each)


class FairQueue(Generic[K]):
    """Keys that wait for their tenant's turn.

    Parameters
    ----------
    slots : int, optional
        Slots in all. A taken key holds one until `release`. Without ``slots`` and ``slots_each``, none is held.
    slots_each : int, optional
        Most slots of one tenant.
    shares_with : FairQueue, optional
        Another queue, which shares its slots with this one.
    """

    def __init__(
        self, *, slots: int | None = None, slots_each: int | None = None, shares_with: FairQueue[K] | None = None
    ) -> None:
        self._tenant_of: dict[K, str] = {}
        self._lines: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()
        """Keys of each tenant that has any, the oldest first; the tenant with the next turn comes first."""
        self._slots: _Slots = shares_with._slots if shares_with is not None else _Slots(slots, slots_each)
        self._holds = min(self._slots.total, self._slots.each) < _UNBOUNDED

    def __len__(self) -> int:
        return len(self._tenant_of)

    @property
    def in_all(self) -> int:
        """Waiting keys plus held slots."""
        return len(self._tenant_of) + self._slots.in_all

    def __contains__(self, key: object) -> bool:
        return key in self._tenant_of

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys in the order of insertion."""
        return iter(self._tenant_of)

    def add(self, key: K, tenant: str) -> None:
        """Add a key; a waiting key keeps its tenant and its place."""
        if key in self._tenant_of:
            return
        self._tenant_of[key] = tenant
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = OrderedDict()
        line[key] = None

    def drop(self, key: K) -> None:
        """Remove a key, if it waits."""
        tenant = self._tenant_of.pop(key, None)
        if tenant is None:
            return
        line = self._lines[tenant]
        del line[key]
        if not line:
            del self._lines[tenant]

    def clear(self) -> None:
        """Remove all keys; slots stay held."""
        self._tenant_of.clear()
        self._lines.clear()

    def count(self, tenant: str) -> int:
        """Return the number of waiting keys of a tenant."""
        line = self._lines.get(tenant)
        return 0 if line is None else len(line)

    def turn(self, among: Callable[[str], bool] | None = None) -> str | None:
        """Return the tenant that has its turn; None if no waiting tenant may hold a slot.

        Parameters
        ----------
        among : callable, optional
            Restricts the choice to some tenants; skipped ones keep their place.
        """
        limit, held = self._slots.limit, self._slots.held
        if limit > 0:
            for tenant in self._lines:
                if held.get(tenant, 0) < limit and (among is None or among(tenant)):
                    return tenant
        return None

    def take(self, tenant: str) -> K:
        """Return the oldest key of a tenant, which has its next turn after all others; it holds a slot until `release`.

        Raises
        ------
        KeyError
            When none of its keys waits.
        """
        line = self._lines[tenant]
        key, _ = line.popitem(last=False)
        del self._tenant_of[key]
        if line:
            self._lines.move_to_end(tenant)
        else:
            del self._lines[tenant]
        if self._holds:
            self._slots.take(tenant)
        return key

    def pop(self, spent: Callable[[str], bool] | None = None) -> K | None:
        """Return the oldest key of the tenant that has its turn, as `take` does; None without one.

        Parameters
        ----------
        spent : callable, optional
            Whether a tenant has to wait now; skipped ones keep their place.
        """
        limit, held = self._slots.limit, self._slots.held
        if limit > 0:
            for tenant in self._lines:
                if held.get(tenant, 0) < limit and (spent is None or not spent(tenant)):
                    return self.take(tenant)
        return None

    def release(self, tenant: str) -> None:
        """Release a slot of a tenant, once the work on one of its keys has ended."""
        self._slots.release(tenant)

    @property
    def in_flight(self) -> int:
        """Number of held slots, including those of a queue that shares them."""
        return self._slots.in_all

    def held(self, tenant: str) -> int:
        """Return the number of slots that a tenant holds."""
        return self._slots.held.get(tenant, 0)


class FairSemaphore:
    """A semaphore with slots that tenants take in turns; for the meaning of its parameters see `FairQueue`."""

    def __init__(self, slots: int, slots_each: int | None = None) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(slots=slots, slots_each=slots_each)

    @contextlib.asynccontextmanager
    async def slot(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it."""
        turn = asyncio.get_running_loop().create_future()
        self._queue.add(turn, tenant)
        self._hand_out()
        try:
            await turn
            yield
        finally:
            if turn.cancelled():
                self._queue.drop(turn)
            else:
                self._queue.release(tenant)
                self._hand_out()

    def _hand_out(self) -> None:
        while (tenant := self._queue.turn()) is not None:
            turn = self._queue.take(tenant)
            if turn.cancelled():  # its task may notice that later
                self._queue.release(tenant)
            else:
                turn.set_result(None)

"""Operators that are broken on purpose in how they meet a full disk, a lost name, a crowded server, and the lease.

Used by `mutants`. Each must be caught.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import aiohttp


def _loses_lines() -> None:
    """What the disk did not take of the ledger is dropped, and writing goes on behind it."""
    from cotide_operator.observability.ledger_file import LedgerFile

    stop = LedgerFile._stop

    def stopped(self: Any, error: OSError) -> None:
        stop(self, error)
        self._held.clear()

    LedgerFile._stop = stopped  # type: ignore[method-assign]  # on purpose


def _remembers_no_name() -> None:
    """A name that was not found once is never asked for again."""
    from cotide_core.errors import ClusterError
    from cotide_kube import transport

    cause, opened, lost = transport._cause, transport.Transport._opened, []

    def noted(error: Exception) -> str:
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            lost.append(error)
        return cause(error)

    def unless_lost(self: Any, session: Any) -> Any:
        if lost:
            raise ClusterError("there is no such server")
        return opened(session)

    transport._cause = noted
    transport.Transport._opened = unless_lost  # type: ignore[method-assign, assignment]  # on purpose


def _hammers() -> None:
    """Whatever a server says of when to come back, a request is repeated soon."""
    from cotide_kube import transport

    transport.retry_after = lambda _value: None  # type: ignore[assignment]  # on purpose


def _by_the_stamp() -> None:
    """A lease is over when its stamp is old by the own clock."""
    from cotide_operator.leaderelection.lease import LeaderElector

    def free(self: Any, lease: Any) -> bool:
        spec = lease.spec
        self._seen = (spec.holder_identity, spec.renew_time)
        if not spec.holder_identity or not spec.renew_time:
            return True
        age = time.time() - datetime.fromisoformat(spec.renew_time).timestamp()
        return bool(age >= (spec.lease_duration_seconds or self._duration()))

    LeaderElector._free = free  # type: ignore[method-assign]  # on purpose


def _takes_at_once() -> None:
    """A lease is taken from whoever has it."""
    from cotide_operator.leaderelection.lease import LeaderElector

    LeaderElector._free = lambda _self, _lease: True  # type: ignore[method-assign]  # on purpose


MACHINE_MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "loses lines": _loses_lines,
    "remembers no name": _remembers_no_name,
    "hammers": _hammers,
    "by the stamp": _by_the_stamp,
    "takes at once": _takes_at_once,
}

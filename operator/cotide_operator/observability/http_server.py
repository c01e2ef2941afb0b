"""The operator's small HTTP server: /metrics, /healthz, /readyz and /debug/board on one port.

The assembly starts it in the operator's own event loop, so that a stuck loop fails its liveness probe. Invariants:
/readyz returns 200 only while everything was listed and this replica can act, and otherwise names the missing parts. A
standby is ready too: it must be allowed to wait for its turn, and to take over. Pages with names of pods require a
right from the API server; a thread computes them, one page at a time.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import orjson
from aiohttp import web

from cotide_core.errors import InputError
from cotide_core.instructions import Forecast
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.observability.access import Access, AccessReviews
from cotide_operator.observability.bounded_connections import BoundedConnections
from cotide_operator.observability.metrics import Metrics

BOARD: Final = "/debug/board"
PAGE_DECISIONS: Final = 100
"""Decisions on a page of /debug/board without ``limit``; chosen."""
BOARD_LIMIT: Final = 5000
"""Last decision on any page; chosen: a reader does not go further, and sorting a long queue would block the loop."""
MAX_CONNECTIONS: Final = 64
"""Open connections; chosen: kubelets, one or two Prometheus and a reader keep a few, and each takes a descriptor."""
REQUEST_SECONDS: Final = 5.0
"""Wall seconds until the first request of a connection; chosen: probes send theirs at once."""
IDLE_SECONDS: Final = 75.0
"""Wall seconds that a connection stays open after a request; chosen: above the usual interval of Prometheus."""
STOP_SECONDS: Final = 5.0
"""Wall seconds for requests in flight at the end; chosen."""
MAX_PAGE: Final = 500
"""Largest ``limit``; chosen: a millisecond to write."""
_REFUSED: Final = {
    Access.UNKNOWN: (401, "show a token: Authorization: Bearer TOKEN\n"),
    Access.FORBIDDEN: (403, f"this user may not get {BOARD}: see deploy/rbac/debug.yaml\n"),
    Access.UNDECIDED: (503, "the API server did not decide whether you may see this\n"),
}


class HealthServer:
    """Serves the operator's own state.

    Parameters
    ----------
    metrics, decisions :
        The shown state.
    missing : callable
        What the operator still waits for, one phrase each; empty when it is ready.
    refresh : callable
        Called before metrics are written, to set gauges that are cheap to read late.
    access : AccessReviews, optional
        Decides on access to debug pages; without it they are closed.
    notes : callable
        Faults of a replica that is ready nevertheless, one sentence each.
    dead : callable
        Faults that only a new process can repair, one phrase each; empty while all parts live.
    """

    def __init__(
        self,
        metrics: Metrics,
        decisions: DecisionStore,
        missing: Callable[[], list[str]],
        refresh: Callable[[], None] | None = None,
        *,
        access: AccessReviews | None = None,
        notes: Callable[[], list[str]] = list,
        dead: Callable[[], list[str]] = list,
    ) -> None:
        self._metrics = metrics
        self._decisions = decisions
        self._missing = missing
        self._refresh = refresh
        self._access = access
        self._notes = notes
        self._dead = dead
        self._writing = asyncio.Lock()
        """Held while a page is computed: one at a time."""
        self._connections: BoundedConnections | None = None
        self._listener: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one (see `port`).

        Raises
        ------
        InputError
            When the port is taken or the address is not ours.
        """
        app = web.Application()
        app.router.add_get("/metrics", self._answer_metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get(BOARD, self._debug_board)
        self._connections = BoundedConnections(
            app, MAX_CONNECTIONS, stop_seconds=STOP_SECONDS, idle_seconds=IDLE_SECONDS, request_seconds=REQUEST_SECONDS
        )
        await self._connections.setup()
        try:
            self._listener = await asyncio.get_running_loop().create_server(self._connections.open, host, port)
        except OSError as error:
            await self.stop()
            why = "is in use" if error.errno == errno.EADDRINUSE else f"can't be opened ({error.strerror})"
            raise InputError(f"port {port} on {host} {why}; choose another one", field="--metrics-port") from error
        self.port = int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        listener, connections = self._listener, self._connections
        self._listener = self._connections = None
        if listener is not None:
            listener.close()
        if connections is not None:
            await connections.cleanup()

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        if self._refresh is not None:
            self._refresh()
        return web.Response(
            body=self._metrics.text(request.query.getall("name[]", ())),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _healthz(self, _request: web.Request) -> web.Response:
        dead = self._dead()
        return web.Response(status=503 if dead else 200, text="".join(f"{what}\n" for what in dead or ["ok"]))

    async def _readyz(self, _request: web.Request) -> web.Response:
        missing = self._missing()
        if missing:
            return web.Response(status=503, text="".join(f"waiting for {what}\n" for what in missing))
        return web.Response(text="".join(["ok\n", *(f"note: {note}\n" for note in self._notes())]))

    async def _debug_board(self, request: web.Request) -> web.Response:
        header = request.headers.get("Authorization", "")
        access = Access.UNDECIDED if self._access is None else await self._access.of(header, BOARD)
        if access in _REFUSED:
            status, words = _REFUSED[access]
            return web.Response(status=status, text=words)
        pod = request.query.get("pod")
        if pod is not None:
            decision = self._decisions.get(pod)
            decisions = [] if decision is None else [decision]
            return _json({"total": len(decisions), "page": 1, "pages": 1, "decisions": decisions})
        try:
            page, limit = int(request.query.get("page", "1")), int(request.query.get("limit", str(PAGE_DECISIONS)))
        except ValueError:
            return web.Response(status=400, text="page and limit are whole numbers\n")
        if page < 1 or not 1 <= limit <= MAX_PAGE:
            return web.Response(status=400, text=f"page counts from 1, limit from 1 to {MAX_PAGE}\n")
        if page * limit > BOARD_LIMIT:
            return web.Response(
                status=400, text=f"pages end at {BOARD_LIMIT} pods; ask for one by pod=NAMESPACE/NAME\n"
            )
        async with self._writing:
            shown = list(self._decisions)  # a later publication replaces these, and changes none of them
            return await asyncio.to_thread(_page, shown, page, limit)


def _page(decisions: Sequence[Decision], page: int, limit: int) -> web.Response:
    """Write one page, in the order of the queue, in a thread."""
    pages = max(1, -(-len(decisions) // limit))
    shown = heapq.nsmallest(page * limit, decisions, key=_board_order)[(page - 1) * limit :]
    return _json({"total": len(decisions), "page": page, "pages": pages, "decisions": shown})


def _board_order(decision: Decision) -> tuple[bool, int, str]:
    return decision.queue_position is None, decision.queue_position or 0, decision.key


def _json(body: object) -> web.Response:
    return web.Response(body=orjson.dumps(body, default=_by_name), content_type="application/json")


def _by_name(value: object) -> dict[str, object]:
    """Return the fields of a decision or a forecast by name: in memory it is a struct or tuple."""
    if isinstance(value, Decision):
        return msgspec.structs.asdict(value)
    if isinstance(value, Forecast):
        return value._asdict()
    raise TypeError(f"{type(value).__name__} has no JSON")

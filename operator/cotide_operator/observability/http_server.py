"""The operator's small HTTP server: /metrics, /healthz, /readyz and /debug/board on one port.

Started by the assembly in the operator's own event loop, so that a stuck loop fails its liveness probe by not
answering. Invariant: /readyz says 200 only while everything was listed and this replica is able to act (a standby is
ready too: it must be allowed to wait for its turn), and otherwise names what is missing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

import orjson
from aiohttp import web

from cotide_core.errors import InputError
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.observability.metrics import Metrics

BOARD_LIMIT: Final = 5000
"""Decisions shown at /debug/board; chosen: more is no page that anybody reads."""


class HealthServer:
    """Serves the operator's own state.

    Parameters
    ----------
    telemetry, board :
        What is shown.
    missing : callable
        What the operator still waits for, one phrase each; empty when it is ready.
    refresh : callable
        Called before metrics are written, to set gauges that are cheap to read late.
    """

    def __init__(
        self,
        telemetry: Metrics,
        board: DecisionStore,
        missing: Callable[[], list[str]],
        refresh: Callable[[], None] | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._board = board
        self._missing = missing
        self._refresh = refresh
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one (see `port`).

        Raises
        ------
        InputError
            When the port is taken or the address is not ours.
        """
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/debug/board", self._debug_board)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            why = "is in use" if error.errno == errno.EADDRINUSE else f"can't be opened ({error.strerror})"
            raise InputError(f"port {port} on {host} {why}; choose another one", field="--metrics-port") from error
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _metrics(self, _request: web.Request) -> web.Response:
        if self._refresh is not None:
            self._refresh()
        return web.Response(
            body=self._telemetry.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        missing = self._missing()
        if missing:
            return web.Response(status=503, text="".join(f"waiting for {what}\n" for what in missing))
        return web.Response(text="ok\n")

    async def _debug_board(self, request: web.Request) -> web.Response:
        pod = request.query.get("pod")
        decisions = [one for one in self._board if pod is None or one.key == pod]
        decisions.sort(key=lambda one: (one.queue_position is None, one.queue_position or 0, one.key))
        body = {"total": len(decisions), "decisions": [asdict(one) for one in decisions[:BOARD_LIMIT]]}
        return web.Response(body=orjson.dumps(body), content_type="application/json")

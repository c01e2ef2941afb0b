"""The API server as one object: start, address, stop.

Called by the command `cotide apiserver` and by `testing`. Owns the socket, the timers and the parts; invariant: after
`stop` no socket, timer or file is left open.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import ssl
from pathlib import Path
from typing import Any, Final

from cotide_core.errors import ClusterError, InputError
from cotide_sim.apiserver.admission.admission import Admission
from cotide_sim.apiserver.admission.webhook_calls import WebhookCalls
from cotide_sim.apiserver.cluster import Cluster, Settings
from cotide_sim.apiserver.controllers.reactions import Reactions
from cotide_sim.apiserver.http.certificates import Certificates, self_signed
from cotide_sim.apiserver.http.dispatch import Dispatcher
from cotide_sim.apiserver.http.faults import Faults
from cotide_sim.apiserver.http.fixed_paths import FixedPaths
from cotide_sim.apiserver.http.http_protocol import Connection, Connections
from cotide_sim.apiserver.http.kubeconfig import kubeconfig_text
from cotide_sim.apiserver.registry.builtins import register_builtins
from cotide_sim.apiserver.registry.resources import Registry
from cotide_sim.apiserver.storage.persistence import ObjectFile
from cotide_sim.apiserver.storage.seeding import seed
from cotide_sim.apiserver.storage.store import Store

EXPIRY_SECONDS: Final = 30.0
"""Chosen: the period of the search for old events."""


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ApiServer:
    """An embedded Kubernetes API server.

    Parameters
    ----------
    host, port : str, int Listening address; port 0 lets the system choose.
    token : str The bearer token that every request must carry; empty permits every request.
    tls : bool Whether to serve https with a certificate of our own authority, which is new at each start.
    data : Path, optional The SQLite file for the objects; without it they end with the server.
    fault_endpoint : bool
        Whether `POST /_faults` plans faults.
    expose : bool Required, together with a token, to listen on another address than loopback.

    Raises
    ------
    InputError
        When the address is not loopback and `expose` or the token is missing.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        tls: bool = False,
        data: Path | None = None,
        settings: Settings | None = None,
        fault_endpoint: bool = False,
        expose: bool = False,
    ) -> None:
        if not is_loopback(host) and not (expose and token):
            raise InputError(
                f"{host} can be reached from other machines: give --expose and --token to serve there", field="--host"
            )
        self.host, self.port, self.token = host, port, token
        self.faults = Faults()
        self._certificates: Certificates | None = self_signed(host) if tls else None
        self._file = ObjectFile(data) if data is not None else None
        store = Store(self._file.next_version() if self._file is not None else 1)
        registry = Registry()
        register_builtins(registry)
        self.cluster = Cluster(store, registry, settings)
        self.cluster.later = self._later
        self.reactions = Reactions(self.cluster, self._soon)
        fixed = FixedPaths(self.cluster, self.faults, fault_endpoint=fault_endpoint, token=token)
        self.dispatcher = Dispatcher(self.cluster, self.faults, fixed, token)
        self._admission = Admission(self.cluster)
        self._webhook_calls = WebhookCalls(self.cluster)
        self.dispatcher.consult = self._webhook_calls.ask
        self._connections = Connections()
        self._server: asyncio.Server | None = None
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def url(self) -> str:
        """The address for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._certificates else 'http'}://{host}:{self.port}"

    def kubeconfig(self) -> str:
        """Return the text of a kubeconfig for this server."""
        return kubeconfig_text(self.url, self.token, self._certificates.authority_pem if self._certificates else None)

    async def start(self) -> None:
        """Read the kept objects, and listen.

        Raises
        ------
        InputError
            When the port is taken or the address does not belong to this machine.
        """
        if self._file is not None:
            self._file.restore(self.cluster, self.reactions.serve)
            self.reactions.note_restored_events()
            self._file.follow(self.cluster.store)
            self.dispatcher.after_write = self._file.commit
            self.reactions.after = self._file.commit
        seed(self.cluster)
        self.reactions.read_default_priority()
        self._admission.read()
        if self._file is not None:
            self._file.commit()
        self._connections.closed = False
        loop = asyncio.get_running_loop()
        context: ssl.SSLContext | None = self._certificates.server_context() if self._certificates else None
        try:
            self._server = await loop.create_server(
                lambda: Connection(self.dispatcher, self._connections), self.host, self.port, ssl=context, backlog=1024
            )
        except OSError as error:
            raise _listen_error(error, self.host, self.port) from None
        self.port = self._server.sockets[0].getsockname()[1]
        self._every(self.cluster.settings.bookmark_seconds, self._bookmark)
        self._every(EXPIRY_SECONDS, self.reactions.expire_events)

    async def stop(self) -> None:
        """End every connection, and write all pending changes."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._server is not None:
            self._server.close()
            self._connections.closed = True
            for connection in list(self._connections):
                connection.shut()
            await self._server.wait_closed()
            self._server = None
        await self._webhook_calls.close()
        if self._file is not None:
            self._file.close()

    async def __aenter__(self) -> ApiServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def drop_watches(self, *, abruptly: bool = False) -> int:
        """End every open watch (cut the connection when abruptly) and return their number."""
        watchers = self.cluster.watches.all()
        for _, watcher in watchers:
            sink: Any = watcher.sink
            sink.abort() if abruptly else sink.close()
        return len(watchers)

    def _bookmark(self) -> None:
        for _, watcher in self.cluster.watches.all():
            if watcher.bookmarks:
                watcher.bookmark(self.cluster.store.version)

    def _later(self, seconds: float, call: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, call)

    def _soon(self, call: Any) -> None:
        asyncio.get_running_loop().call_soon(call)

    def _every(self, seconds: float, call: Any) -> None:
        loop = asyncio.get_running_loop()
        index = len(self._timers)

        def ring() -> None:
            self._timers[index] = loop.call_later(seconds, ring)
            call()

        self._timers.append(loop.call_later(seconds, ring))


def _listen_error(error: OSError, host: str, port: int) -> InputError | ClusterError:
    if error.errno == errno.EADDRINUSE:
        return InputError(f"port {port} on {host} is in use; choose another (0 lets the system choose)", field="--port")
    if error.errno in (errno.EADDRNOTAVAIL, -2, -3):
        return InputError(f"{host} is not an address of this machine", field="--host")
    if error.errno == errno.EACCES:
        return InputError(f"port {port} may not be used by this user; choose one above 1023", field="--port")
    return ClusterError(f"the API server can't listen on {host}:{port}: {error.strerror or error}")

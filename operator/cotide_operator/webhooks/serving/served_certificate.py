"""A server that runs as long as it has a certificate, and the watch on that certificate.

The admission webhook and the extender use it, on every replica. The certificate lies in a mounted directory, or in a
Secret that the replicas share (see `shared_certificate`). Invariant: no fault of certificates stops the operator. The
log and the metrics report it, and the server keeps the previous certificate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from prometheus_client import Gauge

from cotide_core.errors import ClusterError, InputError
from cotide_operator.webhooks.serving.certificates import Pair, expires
from cotide_operator.webhooks.serving.https_server import HttpsServer
from cotide_operator.webhooks.serving.mounted_certificate import MountedCertificate
from cotide_operator.webhooks.serving.shared_certificate import SharedCertificate
from cotide_operator.webhooks.serving.tls import ServingContext

_LOG = logging.getLogger(__name__)

POLL_SECONDS: Final = 30.0
"""Wall seconds between two checks of the certificate; chosen: kubelets update mounted Secrets about once a minute, and
a certificate is renewed weeks before it ends."""
RETRY_SECONDS: Final = 2.0
"""Wall seconds between two checks without any certificate; chosen."""


def serving_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the valid names of a self-made certificate: the service, and this machine for an operator outside."""
    name = f"{service}.{namespace}"
    return (f"{name}.svc", name, f"{name}.svc.cluster.local", "localhost", "127.0.0.1", "::1")


class ServedCertificate:
    """One server and its certificate.

    Parameters
    ----------
    what : name of the server in the log.
    server : started once there is a certificate.
    directory : of a mounted certificate; None: the one of ``shared``.
    shared : the Secret that replicas share.
    expiry : shows when the certificate ends.
    now : the time of day.
    trust : receives the authorities before a certificate of theirs is served.
    client_authority : file of the authorities that sign clients' certificates; None requires no certificate of clients.
    """

    def __init__(
        self,
        what: str,
        server: HttpsServer,
        *,
        directory: Path | None,
        shared: SharedCertificate,
        expiry: Gauge,
        now: Callable[[], datetime],
        trust: Callable[[bytes], Awaitable[None]] | None = None,
        client_authority: Path | None = None,
    ) -> None:
        self._what = what
        self._server = server
        self._mounted = MountedCertificate(directory) if directory is not None else None
        self._shared = shared
        self._expiry = expiry
        self._now = now
        self._trust = trust
        self._context = ServingContext(client_authority)
        self._last_warning = self._unstarted = ""

    @property
    def listening(self) -> bool:
        """Whether requests can be answered."""
        return self._server.port > 0

    async def run(self, host: str, port: int) -> None:
        """Serve until cancelled.

        Raises
        ------
        InputError
            When the port is taken.
        """
        try:
            while True:
                await self.look()
                if not self.listening and self._context.pair is not None:
                    await self._start(host, port)
                await asyncio.sleep(POLL_SECONDS if self.listening else RETRY_SECONDS)
        finally:
            await self._server.stop()

    async def _start(self, host: str, port: int) -> None:
        try:
            await self._server.start(host, port, self._context.listening)
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 - the application fails over the cluster: only this server is missing
            complaint = f"{type(error).__name__}: {error}"
            if complaint != self._unstarted:
                _LOG.exception("%s can't be started, and will be retried", self._what)
            self._unstarted = complaint
            return
        self._unstarted = ""
        _LOG.info("%s on https://%s:%d", self._what, host, self._server.port)

    async def look(self) -> None:
        """Load the present certificate, renew a self-made one, and pass its authorities to ``trust``."""
        try:
            await self._take_over()
        except (ClusterError, InputError) as error:
            if str(error) != self._last_warning:  # one line at the start of a fault
                self._last_warning = str(error)
                _LOG.warning("%s: %s", self._what, error)
        else:
            self._last_warning = ""

    async def _take_over(self) -> None:
        if self._mounted is not None:
            self._use(await self._mounted.look())
            return
        kept = await self._shared.look()
        try:
            # Before the server uses it: clients that see it next then trust it.
            if self._trust is not None:
                await self._trust(kept.bundle_pem)
        finally:
            self._use(kept.serving)

    def _use(self, pair: Pair) -> None:
        if self._context.use(pair, self._now()):
            end = expires(pair.certificate_pem)
            self._expiry.set(end.timestamp())
            _LOG.info("%s serves a certificate that ends %s", self._what, end.strftime("%Y-%m-%dT%H:%M:%SZ"))

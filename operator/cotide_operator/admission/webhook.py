"""The admission webhook as one part of the operator: its certificate watched, its server running.

Run by `assembly` on every replica, leader or not: an answer needs the mirror and nothing else. Invariant: nothing that
goes wrong with certificates stops the operator; it is told in the log, in /readyz and in the metrics, the certificate
that was served before goes on being served, and pods that are not shown keep their plain requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from cotide_core.errors import ClusterError, InputError
from cotide_kube.client import KubeClient
from cotide_operator.admission.certificates import Pair, expires
from cotide_operator.admission.mounted_certificate import MountedCertificate
from cotide_operator.admission.registration import Registration
from cotide_operator.admission.review import Reviewer
from cotide_operator.admission.server import AdmissionServer
from cotide_operator.admission.shared_certificate import Lives, SharedCertificate
from cotide_operator.admission.tls import ServingContext
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.host_load_settings import AdmissionSettings
from cotide_operator.config.settings import Settings
from cotide_operator.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)

LOOK_SECONDS: Final = 30.0
"""Wall seconds between two looks at the certificate; chosen: kubelets update mounted Secrets about once a minute, and a
certificate is renewed weeks before it ends."""
RETRY_SECONDS: Final = 2.0
"""Wall seconds until the next look while there is no certificate at all; chosen."""


def serving_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return what a self-made certificate is good for: the service, and this machine for an operator outside."""
    name = f"{service}.{namespace}"
    return (f"{name}.svc", name, f"{name}.svc.cluster.local", "localhost", "127.0.0.1", "::1")


def make_webhook(
    settings: Settings, client: KubeClient, mirror: ObjectCache, telemetry: Metrics
) -> AdmissionWebhook | None:
    """Return the webhook that the settings ask for, if they do."""
    if not settings.admission.enabled:
        return None
    return AdmissionWebhook(settings.admission, client, mirror, telemetry, settings.scheduler_name)


class AdmissionWebhook:
    """The webhook of one replica.

    Parameters
    ----------
    settings : AdmissionSettings
    client : KubeClient
        For the Secret and the configuration, where the certificate is self-made.
    mirror, telemetry, scheduler_name :
        See `Reviewer` and `AdmissionServer`.
    now : callable
        The time of day; tests pass their own.
    """

    def __init__(
        self,
        settings: AdmissionSettings,
        client: KubeClient,
        mirror: ObjectCache,
        telemetry: Metrics,
        scheduler_name: str,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        lives: Lives = Lives(),  # noqa: B008 - frozen
    ) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._now = now
        self._context = ServingContext()
        self.server = AdmissionServer(Reviewer(mirror, scheduler_name), telemetry)
        self._mounted = None
        self._shared: SharedCertificate | None = None
        if settings.certificate_directory is not None:
            self._mounted = MountedCertificate(settings.certificate_directory)
        else:
            service, namespace = settings.service_name, settings.service_namespace
            self._shared = SharedCertificate(
                client, namespace, f"{service}-certificate", serving_names(service, namespace), now=now, lives=lives
            )
        self._registration = Registration(client, settings.service_name)
        self._complaint = ""

    @property
    def listening(self) -> bool:
        """Whether reviews can be answered."""
        return self.server.port > 0

    async def run(self, host: str) -> None:
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
                    await self.server.start(host, self._settings.port, self._context.listening)
                    _LOG.info("admission webhook on https://%s:%d", host, self.server.port)
                await asyncio.sleep(LOOK_SECONDS if self.listening else RETRY_SECONDS)
        finally:
            await self.server.stop()

    async def look(self) -> None:
        """Take over the certificate as it is now, renew it if that is ours to do, and tell the API server."""
        try:
            await self._take_over()
        except (ClusterError, InputError) as error:
            if str(error) != self._complaint:  # one line when trouble starts
                self._complaint = str(error)
                _LOG.warning("admission webhook: %s", error)
        else:
            self._complaint = ""

    async def _take_over(self) -> None:
        if self._mounted is not None:
            self._use(await self._mounted.look())
        elif self._shared is not None:
            kept = await self._shared.look()
            try:
                # Before it is served: the API server then trusts what it is about to see.
                await self._registration.trust(kept.bundle_pem)
            finally:
                self._use(kept.serving)

    def _use(self, pair: Pair) -> None:
        if self._context.use(pair, self._now()):
            end = expires(pair.certificate_pem)
            self._telemetry.admission_certificate_expiry.set(end.timestamp())
            _LOG.info("admission webhook serves a certificate that ends %s", end.strftime("%Y-%m-%dT%H:%M:%SZ"))

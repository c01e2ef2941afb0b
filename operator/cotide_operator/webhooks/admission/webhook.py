"""The admission webhook as one part of the operator: it watches its certificate and runs its server.

`assembly` runs it on every replica, leader or not: an answer needs only the cache. Invariant: no fault of certificates
stops the operator. The log, /readyz and the metrics report it; the server keeps the previous certificate, and pods that
are not shown keep their plain requests.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from cotide_kube.client import KubeClient
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.host_load_settings import AdmissionSettings
from cotide_operator.config.settings import Settings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.admission.registration import Registration
from cotide_operator.webhooks.admission.review import Reviewer
from cotide_operator.webhooks.admission.server import AdmissionServer
from cotide_operator.webhooks.serving.served_certificate import ServedCertificate, serving_names
from cotide_operator.webhooks.serving.shared_certificate import Lives, SharedCertificate


def make_webhook(
    settings: Settings, client: KubeClient, cache: ObjectCache, metrics: Metrics
) -> AdmissionWebhook | None:
    """Return the webhook, or None if the settings disable it."""
    if not settings.admission.enabled:
        return None
    return AdmissionWebhook(settings.admission, client, cache, metrics, settings.scheduler_names)


class AdmissionWebhook:
    """The webhook of one replica.

    Parameters
    ----------
    settings : AdmissionSettings
    client : KubeClient
        For the Secret and the configuration, if the certificate is self-made.
    cache, metrics, scheduler_names :
        See `Reviewer` and `AdmissionServer`.
    now : callable
        The time of day; tests pass their own.
    """

    def __init__(
        self,
        settings: AdmissionSettings,
        client: KubeClient,
        cache: ObjectCache,
        metrics: Metrics,
        scheduler_names: tuple[str, ...],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        lives: Lives = Lives(),  # noqa: B008 - frozen
    ) -> None:
        self._settings = settings
        self.server = AdmissionServer(Reviewer(cache, scheduler_names), metrics)
        service, namespace = settings.service_name, settings.service_namespace
        names = serving_names(service, namespace)
        self._certificate = ServedCertificate(
            "admission webhook",
            self.server,
            directory=settings.certificate_directory,
            shared=SharedCertificate(client, namespace, f"{service}-certificate", names, now=now, lives=lives),
            expiry=metrics.admission_certificate_expiry,
            now=now,
            trust=Registration(client, service).trust,
        )

    @property
    def listening(self) -> bool:
        """Whether reviews can be answered."""
        return self._certificate.listening

    async def run(self, host: str) -> None:
        """Serve until cancelled.

        Raises
        ------
        InputError
            When the port is taken.
        """
        await self._certificate.run(host, self._settings.port)

    async def look(self) -> None:
        """Load the present certificate, renew a self-made one, and write its authority to the API server."""
        await self._certificate.look()

"""Certificates of the admission webhook that rotate, on a real server: pods are changed all along, in leaps of days.

The webhook's own certificates, with its ServiceAccount's rights. Its clock starts 160 days ago and comes to today a day
at a look, so that what it makes last is good today: authorities live 100 days here and certificates 33, a third as in
production's shortest case.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from control_plane import free_port
from cryptography import x509
from real_cluster import HEAD, RealCluster
from rights import Used

from cotide_core.units import resource_amount
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_operator.cache.object_cache import KINDS, ObjectCache
from cotide_operator.config.settings import parse_settings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.admission.webhook import AdmissionWebhook
from cotide_operator.webhooks.serving.shared_certificate import Lives

CONFIGURATION: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/cotide-admission"
SERVICE: Final = "/api/v1/namespaces/cotide-system/services/cotide-admission"
SECRET: Final = "/api/v1/namespaces/cotide-system/secrets/cotide-admission-certificate"
CPU: Final = "cotide.dev/reclaimed-cpu"
LIVES: Final = Lives(authority=timedelta(days=100), serving=timedelta(days=33))
DAYS: Final = 160
GOOD_SINCE: Final = 28
"""Days ago the first certificate is made that is good today: 160 - 6 x 22 = 28, and 33 from there."""


@pytest.fixture
async def led_here(cluster: RealCluster) -> AsyncIterator[int]:
    """The webhook's Service, led to a port of this machine; nobody has a certificate yet."""
    port, client = free_port(), cluster.client
    service, configuration = await client.get(SERVICE), await client.get(CONFIGURATION)
    body = {"metadata": {"labels": {"cotide.dev/reclaim": "enabled"}}}
    await client.patch(f"/api/v1/namespaces/{cluster.namespace}", body)
    with contextlib.suppress(ApiError):  # another test's operator may have left it
        await client.delete(SECRET)
    external = {"type": "ExternalName", "externalName": "localhost", "clusterIP": None, "clusterIPs": None}
    await client.patch(SERVICE, {"spec": external})
    webhooks = [{"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": port}]
    await client.patch(CONFIGURATION, webhooks, "json")
    try:
        yield port
    finally:
        await client.patch(SERVICE, {"spec": {"type": service["spec"]["type"], "externalName": None}})
        steps = [{"op": "replace", "path": "/webhooks", "value": configuration["webhooks"]}]
        await client.patch(CONFIGURATION, steps, "json")
        with contextlib.suppress(ApiError):
            await client.delete(SECRET)


async def test_pods_are_changed_while_authorities_and_certificates_rotate(cluster: RealCluster, led_here: int) -> None:
    today, ago = datetime.now(UTC), DAYS

    def now() -> datetime:
        return today - timedelta(days=ago)

    used = Used(cluster)
    text = f"{HEAD}policy: hierarchical\nreclaimed: {{publish: true}}\nadmission: {{enabled: true, port: {led_here}}}\n"
    token = await cluster.plane.token("cotide-system", "cotide-operator")
    mine = cluster.plane.kubeconfig("certificates", token=token)
    cache = ObjectCache()
    for kind in KINDS:
        cache.mark_synced(kind)
    kept, served = [], []
    async with KubeClient(load_credentials(str(mine))) as client:
        settings = parse_settings(text).admission
        webhook = AdmissionWebhook(settings, client, cache, Metrics(), ("cotide",), now=now, lives=LIVES)
        running = asyncio.create_task(webhook.run("127.0.0.1"))
        try:
            await cluster.until("the webhook listens", lambda: webhook.listening)
            for ago in range(DAYS, -1, -1):
                await webhook.look()
                bundle, certificate = await trusted(cluster), (await held(cluster))["tls.crt"]
                changed = not kept or (bundle, certificate) != (kept[-1], served[-1])
                kept, served = [*kept, bundle], [*served, certificate]
                if changed and ago <= GOOD_SINCE:
                    await cluster.until(f"pods are changed {ago} days ago", lambda: is_changed(cluster))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    first, last = x509.load_pem_x509_certificates(kept[0]), x509.load_pem_x509_certificates(kept[-1])
    assert (len(first), len(last), max(len(x509.load_pem_x509_certificates(one)) for one in kept)) == (1, 2, 2)
    assert first[0] not in last, "an authority that ended is trusted no longer"
    assert len(set(served)) == 8  # one more every 22 days, and the first
    x509.load_pem_x509_certificates(served[-1])[0].verify_directly_issued_by(last[0])
    assert ("", "secrets", "update", "cotide-admission-certificate") in used.rights()
    assert used.missed() == set()


async def trusted(cluster: RealCluster) -> bytes:
    """The authorities that the API server trusts."""
    (webhook,) = (await cluster.client.get(CONFIGURATION))["webhooks"]
    return base64.b64decode(webhook["clientConfig"]["caBundle"])


async def held(cluster: RealCluster) -> dict[str, bytes]:
    data = (await cluster.client.get(SECRET))["data"]
    return {name: base64.b64decode(value) for name, value in data.items()}


async def is_changed(cluster: RealCluster) -> bool:
    """Whether a batch pod that asks for half a cpu is given half a reclaimed one."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "500m"}}}
    metadata = {"name": "tried", "labels": {"cotide.dev/class": "batch"}}
    body = {"metadata": metadata, "spec": {"schedulerName": "cotide", "containers": [container]}}
    made: dict[str, Any] = await cluster.client.create(cluster.pods, body, {"dryRun": "All"})
    requests = made["spec"]["containers"][0]["resources"]["requests"]
    return CPU in requests and resource_amount(CPU, requests[CPU]) == 500

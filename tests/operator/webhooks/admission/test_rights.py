"""deploy/admission grants what the webhook uses, by name, and no more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import yaml
from repository import ROOT

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.host_load_settings import AdmissionSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.admission.webhook import AdmissionWebhook
from cotide_operator.webhooks.serving.shared_certificate import Lives
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.http.http_protocol import Request
from cotide_sim.apiserver.testing import running_server

ADMISSION: Final = ROOT / "deploy" / "admission"
VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

Right = tuple[str, str, str]
"""Verb, resource, and the name that it is limited to; empty for a creation, which can't be."""


class RightsUsed(Fault):
    """A fault that never strikes and writes down what was asked for."""

    def __init__(self) -> None:
        super().__init__(count=-1)
        self.rights: set[Right] = set()

    def matches(self, request: Request) -> bool:
        parts = request.path.strip("/").split("/")
        for resource in ("secrets", "mutatingwebhookconfigurations"):
            if resource in parts:
                name = "/".join(parts[parts.index(resource) + 1 :])
                self.rights.add((VERBS[request.method], resource, name))
        return False


def granted() -> set[Right]:
    documents = yaml.safe_load_all((ADMISSION / "rbac.yaml").read_text(encoding="utf-8"))
    return {
        (verb, resource, name)
        for document in documents
        for rule in document.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


async def test_the_webhook_may_do_what_it_does_and_nothing_else() -> None:
    recorded = RightsUsed()
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    (configuration,) = yaml.safe_load_all((ADMISSION / "webhook.yaml").read_text(encoding="utf-8"))
    async with running_server() as server, KubeClient(Credentials(server.url)) as client:
        await client.create("/api/v1/namespaces", {"metadata": {"name": "cotide-system"}})
        await client.create("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", configuration)
        server.faults.add(recorded)
        webhook = AdmissionWebhook(
            AdmissionSettings(), client, ObjectCache(), Metrics(), ("cotide",), now=lambda: now[0], lives=Lives()
        )
        for _ in range(2):  # made, then renewed
            await webhook.look()
            now[0] += timedelta(days=61)
    assert recorded.rights == granted()

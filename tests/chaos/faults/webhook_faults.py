"""An admission webhook of somebody else that is slow, answers nonsense or refuses what it is shown.

Used by `run_context` for plans that are hooked. It is asked about pods, bindings and evictions, and about the statuses
of our own resources, of the run's namespace, and must be (failurePolicy Fail). Told of nothing it lets all pass. Users
and kubelets of the run meet it, too, and try again, as they do.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

from aiohttp import web

from cotide_kube.client import KubeClient
from cotide_sim.apiserver.http.certificates import self_signed

PATH: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
TIMEOUT_SECONDS: Final = 1
"""The least that the API takes."""
SLOW_SECONDS: Final = 1.3
"""Beyond it, and within what our client waits for an answer (2 s in a run)."""
SHARE: Final = 0.5
"""Of what it is asked it spoils so much; chosen, so that who tries again comes through."""
WAYS: Final = ("slow", "nonsense", "refuses", "mixed")
_NONSENSE: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"response": {"uid": "of another review", "allowed": True}},
    {"response": {"allowed": True, "patchType": "JSONPatch", "patch": "!"}},
    {"response": {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(b"[{}]").decode()}},
    {"response": {"allowed": True, "patchType": "Sideways", "patch": "W10="}},
)
_REFUSALS: Final = ((403, "Forbidden"), (429, "TooManyRequests"), (409, "Conflict"), (422, "Invalid"), (500, ""))
_RULES: Final = (
    (("CREATE",), "", "v1", ("pods", "pods/binding", "pods/eviction")),
    (("UPDATE",), "", "v1", ("pods", "pods/status")),
    (("UPDATE",), "cotide.dev", "v1alpha1", ("jobs/status", "workloads/status")),
)


class WrongWebhook:
    """One webhook.

    Attributes
    ----------
    says : one of `WAYS`; empty while it lets all pass.
    spoiled : what it did, by way and resource.
    """

    def __init__(self, namespace: str, seed: int) -> None:
        self._namespace, self._rng = namespace, random.Random(f"webhook {seed}")
        self.says = ""
        self.asked: Counter[str] = Counter()
        self.spoiled: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def serving(self, client: KubeClient) -> AsyncIterator[None]:
        """Answer, and be asked by the server from now on."""
        certificates = self_signed("127.0.0.1")
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificates.server_context()).start()
        url = f"https://127.0.0.1:{runner.addresses[0][1]}/look"
        name = f"wrong-{self._namespace}"
        await client.create(PATH, self._configuration(name, url, certificates.authority_pem))
        try:
            yield
        finally:
            await client.delete(f"{PATH}/{name}")
            await runner.cleanup()

    def _configuration(self, name: str, url: str, authority: bytes) -> dict[str, Any]:
        rules = [
            {"operations": [*verbs], "apiGroups": [group], "apiVersions": [version], "resources": [*resources]}
            for verbs, group, version, resources in _RULES
        ]
        hook = {
            "name": "wrong.example.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "failurePolicy": "Fail",
            "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}},
            "rules": rules,
        }
        return {"metadata": {"name": name}, "webhooks": [hook]}

    async def _answer(self, request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        about = "/".join(filter(None, (asked["resource"]["resource"], asked.get("subResource", ""))))
        self.asked[about] += 1
        way = self._rng.choice(WAYS[:-1]) if self.says == "mixed" else self.says
        if not way or self._rng.random() >= SHARE:
            return _review({"uid": asked["uid"], "allowed": True})
        self.spoiled[f"{way} {about}"] += 1
        if way == "slow":
            await asyncio.sleep(SLOW_SECONDS)
            return _review({"uid": asked["uid"], "allowed": True})
        if way == "nonsense":
            nonsense = self._rng.choice(_NONSENSE)
            if not nonsense:
                return web.Response(text="<html>", content_type="text/html", status=self._rng.choice((200, 502)))
            return _review({"uid": asked["uid"], **nonsense["response"]})
        code, reason = self._rng.choice(_REFUSALS)
        status = {"code": code, "reason": reason, "message": "not today"}
        return _review({"uid": asked["uid"], "allowed": False, "status": status})


def _review(response: dict[str, Any]) -> web.Response:
    return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

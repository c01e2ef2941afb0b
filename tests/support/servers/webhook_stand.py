"""Webhooks that a test answers for, the emulator that asks them, and their configurations."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web
from manifests import pod_manifest

from cotide_sim.apiserver.http.certificates import Certificates, self_signed
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.apiserver.testing import running_server

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
GROUP = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = f"{GROUP}/mutatingwebhookconfigurations", f"{GROUP}/validatingwebhookconfigurations"
MERGE = "application/merge-patch+json"

Review = dict[str, Any]
CERTIFICATES = self_signed("hook.tools.svc")


def patched(*operations: dict[str, Any]) -> dict[str, Any]:
    return {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(operations).encode()).decode(),
    }


def annotated(key: str, value: str = "yes") -> dict[str, Any]:
    return {"op": "add", "path": "/metadata/annotations", "value": {key: value}}


class Hook:
    """A webhook over TLS that remembers what it was asked; `answer` says what it answers."""

    def __init__(self) -> None:
        self.asked: list[Review] = []
        self.queries: list[dict[str, str]] = []
        self.answer: Callable[[Review], dict[str, Any] | web.Response] = lambda _: {"allowed": True}
        self.pause: asyncio.Event | None = None
        self.port = 0

    async def handle(self, request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        self.asked.append(asked)
        self.queries.append({**request.query, "host": request.headers["Host"], "path": request.path})
        if self.pause is not None:
            await self.pause.wait()
        answer = self.answer(asked)
        if isinstance(answer, web.Response):
            return answer
        body = {"uid": asked["uid"], **answer}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": body})


@asynccontextmanager
async def serving(hook: Hook, certificates: Certificates = CERTIFICATES) -> AsyncIterator[Hook]:
    app = web.Application()
    app.router.add_post("/{path:.*}", hook.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificates.server_context()).start()
    hook.port = runner.addresses[0][1]
    try:
        yield hook
    finally:
        if hook.pause is not None:
            hook.pause.set()
        await runner.cleanup()


class User:
    """Sends requests and returns status and body."""

    def __init__(self, url: str) -> None:
        self.session = aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=20))
        self.warning = ""

    async def __call__(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        async with self.session.request(method, path, json=body, headers={"Content-Type": kind}) as answer:
            self.warning = answer.headers.get("Warning", "")
            return answer.status, await answer.json()


@asynccontextmanager
async def emulator() -> AsyncIterator[tuple[ApiServer, User]]:
    async with running_server() as server:
        user = User(server.url)
        try:
            yield server, user
        finally:
            await user.session.close()


@asynccontextmanager
async def everything() -> AsyncIterator[tuple[User, Hook]]:
    async with emulator() as (_, user), serving(Hook()) as hook:
        yield user, hook


RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def webhook(port: int, name: str = "one.example.dev", **changes: Any) -> dict[str, Any]:
    bundle = base64.b64encode(CERTIFICATES.authority_pem).decode()
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/look", "caBundle": bundle},
        "rules": [RULE],
        **changes,
    }


def configuration(*hooks: dict[str, Any], name: str = "hooks") -> dict[str, Any]:
    return {"metadata": {"name": name}, "webhooks": list(hooks)}


def pod(name: str = "web", **metadata: Any) -> dict[str, Any]:
    """A pod for the webhooks to see."""
    return pod_manifest(name, **metadata)


async def register(user: User, *hooks: dict[str, Any], path: str = MUTATING, name: str = "hooks") -> None:
    status, body = await user("POST", path, configuration(*hooks, name=name))
    assert status == 201, body

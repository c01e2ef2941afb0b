"""The emulator with a plain HTTP client, and the objects that its tests send."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from manifests import container, pod_manifest

from cotide_sim.apiserver.server import ApiServer
from cotide_sim.apiserver.testing import running_server

PODS = "/api/v1/namespaces/default/pods"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"


def pod(name: str = "web", **changes: Any) -> dict[str, Any]:
    """A pod with an image, as a user of the API would write it."""
    spec = {"containers": [container(name="main", image="example/image:1")], **changes.pop("spec", {})}
    return pod_manifest(name, spec=spec, **changes)


def definition(schema: dict[str, Any] | None = None, **version: Any) -> dict[str, Any]:
    one = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"status": {}},
        **version,
    }
    names = {"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"], "categories": ["toys"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.dev"},
        "spec": {"group": "example.dev", "scope": "Namespaced", "names": names, "versions": [one]},
    }


GADGETS = "/apis/example.dev/v1/namespaces/default/gadgets"


class Client:
    """A thin client that returns the status and the decoded body."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.headers: dict[str, str] = {}

    async def __call__(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": kind, **headers}
        async with self.session.request(method, path, data=data, headers=sent) as answer:
            self.headers = dict(answer.headers)
            text = await answer.text()
            try:
                return answer.status, json.loads(text)
            except ValueError:
                return answer.status, text

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[Any]:
        async with self.session.get(path, timeout=aiohttp.ClientTimeout(total=20)) as answer:

            async def events() -> AsyncIterator[tuple[str, Any]]:
                async for line in answer.content:
                    event = json.loads(line)
                    yield event["type"], event["object"]

            yield events()


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[ApiServer, Client]]:
    async with running_server(**options) as server, aiohttp.ClientSession(server.url) as session:
        yield server, Client(session)

"""How deep JSON may be nested that an API server takes, and what can be done with what it took."""

from __future__ import annotations

import json

import pytest
from servers import Server

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.cache.preflight import install

JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
MERGE = "application/merge-patch+json"


def nested(levels: int) -> bytes:
    """A Job whose JSON is nested so deep; six levels are around the part that goes deeper."""
    template = {"spec": {"containers": [{"name": "c", "image": "i", "x": 0}]}}
    body = {"metadata": {"name": "deep"}, "spec": {"class": "batch", "template": template}}
    text = json.dumps({"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", **body})
    return text.replace('"x": 0', '"x": ' + '{"a":' * (levels - 6) + "1" + "}" * (levels - 6)).encode()


@pytest.mark.parametrize("levels", [300, 1_100, 10_000])
async def test_what_is_taken_is_read_changed_and_deleted_like_any_other(server: Server, levels: int) -> None:
    async with KubeClient(server.credentials) as client:
        await install(client)
        await client.request("POST", JOBS, nested(levels))
        depths = b'{"a":' * (levels - 6)
        assert depths in await client.request("GET", JOBS)
        patched = await client.request(
            "PATCH", f"{JOBS}/deep", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE
        )
        assert depths in patched
        status = {"status": {"phase": "Queued"}}
        assert b'"phase":"Queued"' in await client.request("PATCH", f"{JOBS}/deep/status", status, content_type=MERGE)
        assert depths in await client.request("GET", f"{JOBS}/deep")
        await client.delete(f"{JOBS}/deep")
        assert await client.list(JOBS) == []


async def test_one_level_more_is_refused(server: Server) -> None:
    async with KubeClient(server.credentials) as client:
        await install(client)
        with pytest.raises(ApiError, match="exceeded max depth") as refused:
            await client.request("POST", JOBS, nested(10_001))
        assert refused.value.status == 400


async def test_it_is_met_again_after_a_restart(server: Server) -> None:
    async with KubeClient(server.credentials) as client:
        await install(client)
        await client.request("POST", JOBS, nested(10_000))
        await server.stop()
        await server.start()
        patched = await client.request(
            "PATCH", f"{JOBS}/deep", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE
        )
        assert b'{"a":' * 9_994 in patched
        await client.delete(f"{JOBS}/deep")

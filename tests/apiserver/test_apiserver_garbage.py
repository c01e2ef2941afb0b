"""Owners and dependents: background, foreground and orphan deletion."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import aiohttp

from cotide_sim.apiserver.testing import running_server

MAPS = "/api/v1/namespaces/default/configmaps"
Call = Callable[..., Awaitable[tuple[int, Any]]]


@asynccontextmanager
async def serving() -> AsyncIterator[Call]:
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:

        async def call(method: str, path: str, body: Any = None) -> tuple[int, Any]:
            data = None if body is None else json.dumps(body)
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            async with session.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
                return answer.status, await answer.json()

        yield call


async def make(call: Call, name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    status, made = await call("POST", MAPS, {"metadata": {"name": name, "ownerReferences": list(owners), **metadata}})
    assert status == 201, made
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}


async def names(call: Call) -> set[str]:
    # A reaction runs in the turn of the loop after the write: the list is a request of its own, and comes later.
    await asyncio.sleep(0)
    return {item["metadata"]["name"] for item in (await call("GET", MAPS))[1]["items"]}


async def test_dependents_follow_their_last_owner_through_generations() -> None:
    async with serving() as call:
        owner, other = await make(call, "owner"), await make(call, "other")
        child = await make(call, "child", owner)
        await make(call, "grandchild", child)
        await make(call, "shared", owner, other)
        await call("DELETE", f"{MAPS}/owner")
        assert await names(call) == {"other", "shared"}
        await call("DELETE", f"{MAPS}/other")
        assert await names(call) == set()


async def test_object_with_an_owner_that_never_was_is_collected() -> None:
    async with serving() as call:
        await make(call, "lost", {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "no-such-uid"})
        assert await names(call) == set()


async def test_orphans_forget_their_owner_and_stay() -> None:
    async with serving() as call:
        await make(call, "child", await make(call, "owner"))
        await call("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Orphan"})
        assert await names(call) == {"child"}
        assert "ownerReferences" not in (await call("GET", f"{MAPS}/child"))[1]["metadata"]


async def test_foreground_owner_waits_for_the_dependents_that_block_it() -> None:
    async with serving() as call:
        owner = await make(call, "owner")
        await make(call, "held", {**owner, "blockOwnerDeletion": True}, finalizers=["a/b"])
        await make(call, "free", owner)
        _, going = await call("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Foreground"})
        assert going["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert await names(call) == {"owner", "held"}
        await call("PATCH", f"{MAPS}/held", {"metadata": {"finalizers": None}})
        assert await names(call) == set()


async def test_bound_pods_of_a_deleted_owner_get_their_grace() -> None:
    pods = "/api/v1/namespaces/default/pods"
    async with serving() as call:
        owner = await make(call, "owner")
        spec = {"containers": [{"name": "c", "image": "i"}]}
        for name in ("waiting", "bound"):
            await call("POST", pods, {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec})
        await call("POST", f"{pods}/bound/binding", {"target": {"name": "n"}})
        await call("DELETE", f"{MAPS}/owner")
        assert await names(call) == set()
        left = (await call("GET", pods))[1]["items"]
        assert [(one["metadata"]["name"], one["metadata"]["deletionGracePeriodSeconds"]) for one in left] == [
            ("bound", 30)
        ]


async def test_a_bound_pod_stays_until_its_finalizer_is_off_and_its_kubelet_has_let_go() -> None:
    pods = "/api/v1/namespaces/default/pods"
    async with serving() as call:
        for name in ("finalizer-first", "kubelet-first"):
            metadata = {"name": name, "finalizers": ["a/b"]}
            await call("POST", pods, {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}})
            await call("POST", f"{pods}/{name}/binding", {"target": {"name": "n"}})
            await call("DELETE", f"{pods}/{name}")
            await call("PATCH", f"{pods}/{name}/status", {"status": {"phase": "Failed"}})
        free, now = {"metadata": {"finalizers": None}}, {"gracePeriodSeconds": 0}
        await call("PATCH", f"{pods}/finalizer-first", free)
        _, waits = await call("GET", f"{pods}/finalizer-first")
        assert waits["metadata"]["deletionGracePeriodSeconds"] == 30
        _, before = await call("GET", f"{pods}/kubelet-first")
        _, stopped = await call("DELETE", f"{pods}/kubelet-first", now)
        due, asked = (datetime.fromisoformat(one["metadata"]["deletionTimestamp"]) for one in (before, stopped))
        assert (due - asked).total_seconds() == 30  # the time at which it was asked for, whenever the grace ended
        assert (await call("PATCH", f"{pods}/kubelet-first", free))[0] == 200
        await call("DELETE", f"{pods}/finalizer-first", now)
        assert (await call("GET", pods))[1]["items"] == []

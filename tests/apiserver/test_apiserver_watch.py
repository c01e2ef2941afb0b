"""Watches of the embedded API server: what is told, from where, and when it is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import orjson
from api_calls import Caller
from exact_lists import AS_OF_EACH_WRITE, TO_COME, as_of_each_write, of_a_version_to_come
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import pod_manifest

from cotide_sim.apiserver.cluster import Settings
from cotide_sim.apiserver.registry.resources import Resource, ServedVersion
from cotide_sim.apiserver.storage import store as store_module
from cotide_sim.apiserver.storage.selectors import Selection
from cotide_sim.apiserver.storage.store import Collection, Store
from cotide_sim.apiserver.storage.watching import kind_of
from cotide_sim.apiserver.testing import running_server

PODS = "/api/v1/namespaces/default/pods"


async def post(session: aiohttp.ClientSession, path: str, body: Any) -> Any:
    async with session.post(path, json=body) as answer:
        return await answer.json()


async def relabel(session: aiohttp.ClientSession, name: str, **labels: str | None) -> Any:
    body = orjson.dumps({"metadata": {"labels": labels}})
    headers = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(f"{PODS}/{name}", data=body, headers=headers) as answer:
        return await answer.json()


async def next_event(answer: aiohttp.ClientResponse) -> tuple[str, Any]:
    line = await asyncio.wait_for(answer.content.readline(), 10)
    event = orjson.loads(line)
    return event["type"], event["object"]


async def test_watch_resumes_from_a_version_and_follows() -> None:
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:
        first = await post(session, PODS, pod_manifest("a"))
        await post(session, PODS, pod_manifest("b"))
        since = first["metadata"]["resourceVersion"]
        async with session.get(f"{PODS}?watch=1&resourceVersion={since}") as answer:
            kind, obj = await next_event(answer)
            assert (kind, obj["metadata"]["name"]) == ("ADDED", "b")
            await relabel(session, "a", x="1")
            kind, obj = await next_event(answer)
            assert (kind, obj["metadata"]["labels"]) == ("MODIFIED", {"x": "1"})
            await session.delete(f"{PODS}/a")
            kind, going = await next_event(answer)
            assert (kind, "deletionTimestamp" in going["metadata"]) == ("MODIFIED", True)
            kind, gone = await next_event(answer)
            assert kind == "DELETED"
            assert int(gone["metadata"]["resourceVersion"]) > int(obj["metadata"]["resourceVersion"])


async def test_selected_watch_sees_objects_come_and_go_as_they_match() -> None:
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:
        await post(session, PODS, pod_manifest("a"))
        async with session.get(f"{PODS}?watch=1&labelSelector=on=yes&resourceVersion=0") as answer:
            await relabel(session, "a", on="yes")
            await relabel(session, "a", on="yes", other="1")
            last = await relabel(session, "a", on="no")
            await session.delete(f"{PODS}/a")
            await post(session, PODS, pod_manifest("z", labels={"on": "yes"}))
            seen = [await next_event(answer) for _ in range(4)]
        assert [kind for kind, _ in seen] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
        # What stops matching is told with its last matching state, at the version that made it stop.
        assert seen[2][1]["metadata"]["labels"]["on"] == "yes"
        assert seen[2][1]["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"]


async def test_unscheduled_pods_leave_a_watch_when_they_are_bound() -> None:
    async with (
        running_server() as server,
        aiohttp.ClientSession(server.url) as session,
        session.get("/api/v1/pods?watch=1&fieldSelector=spec.nodeName=") as answer,
    ):
        await post(session, PODS, pod_manifest("a"))
        await post(session, f"{PODS}/a/binding", {"target": {"name": "n"}})
        assert [(await next_event(answer))[0] for _ in range(2)] == ["ADDED", "DELETED"]


async def test_initial_events_end_with_a_marked_bookmark() -> None:
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:
        await post(session, PODS, pod_manifest("a"))
        query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
        async with session.get(f"{PODS}?{query}") as answer:
            assert (await next_event(answer))[0] == "ADDED"
            kind, bookmark = await next_event(answer)
            assert kind == "BOOKMARK"
            assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_silent_watch_gets_bookmarks_and_ends_at_its_timeout() -> None:
    settings_ = Settings(bookmark_seconds=0.05)
    async with running_server(settings=settings_) as server, aiohttp.ClientSession(server.url) as session:
        async with session.get(f"{PODS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1") as answer:
            kind, bookmark = await next_event(answer)
            assert kind == "BOOKMARK"
            assert bookmark["kind"] == "Pod"
            assert int(bookmark["metadata"]["resourceVersion"]) == server.cluster.store.version
            await asyncio.wait_for(answer.content.read(), 10)
        assert len(server.cluster.watches) == 0


async def test_versions_that_are_no_longer_kept_are_gone(monkeypatch: Any) -> None:
    monkeypatch.setattr(store_module, "LOG_EVENTS", 3)
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:
        first = await post(session, PODS, pod_manifest("a"))
        for index in range(5):
            await post(session, PODS, pod_manifest(f"b{index}"))
        old, now = first["metadata"]["resourceVersion"], server.cluster.store.version
        async with session.get(f"{PODS}?watch=1&resourceVersion={old}") as answer:
            kind, status = await next_event(answer)
            assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
            assert await answer.content.read() == b""
        async with session.get(f"{PODS}?watch=1&resourceVersion={now - 2}") as answer:
            assert [(await next_event(answer))[1]["metadata"]["name"] for _ in range(2)] == ["b3", "b4"]


async def test_a_watch_from_a_version_to_come_tells_of_nothing_before_it() -> None:
    """As kube-apiserver's: it refuses none, and is silent until then."""
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:
        now = server.cluster.store.version
        async with session.get(f"{PODS}?watch=1&resourceVersion={now + 2}") as answer:
            made = [await post(session, PODS, pod_manifest(name)) for name in "abcd"]
            seen = [(await next_event(answer))[1]["metadata"] for _ in range(2)]
        assert [one["name"] for one in seen] == ["c", "d"]
        assert int(made[1]["metadata"]["resourceVersion"]) == now + 2


async def test_dropped_watches_end_and_the_next_one_goes_on() -> None:
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:
        version = server.cluster.store.version
        async with session.get(f"{PODS}?watch=1&resourceVersion={version}") as answer:
            await post(session, PODS, pod_manifest("a"))
            await next_event(answer)
            assert server.drop_watches() == 1
            assert await asyncio.wait_for(answer.content.read(), 10) == b""
        async with session.get(f"{PODS}?watch=1&resourceVersion={version}") as answer:
            assert (await next_event(answer))[1]["metadata"]["name"] == "a"


async def test_a_list_as_of_a_past_version_is_what_a_real_server_lists() -> None:
    async with running_server() as server:
        caller = Caller(server.url, "default")
        assert await asyncio.to_thread(as_of_each_write, caller) == AS_OF_EACH_WRITE
        assert await asyncio.to_thread(of_a_version_to_come, caller) == TO_COME


async def test_a_list_as_of_a_version_that_is_no_more_kept_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(store_module, "LOG_EVENTS", 2)
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:
        made = [await post(session, PODS, pod_manifest(name)) for name in "abcd"]
        answers = []
        for one in made:
            at = one["metadata"]["resourceVersion"]
            async with session.get(f"{PODS}?resourceVersion={at}&resourceVersionMatch=Exact") as answer:
                found = await answer.json()
                answers.append((answer.status, [item["metadata"]["name"] for item in found.get("items", ())]))
    assert answers == [(410, []), (200, ["a", "b"]), (200, ["a", "b", "c"]), (200, ["a", "b", "c", "d"])]


THING = Resource(group="", plural="things", kind="Thing", versions=(ServedVersion("v1"),))
STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["on", "off", "gone"])), max_size=30
)  # fmt: skip


def _step(kept: Store, collection: Collection, name: str, what: str) -> None:
    old = collection.get("ns", name)
    if what == "gone":
        if old is not None:
            kept.remove(collection, old)
        return
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": {"x": what, "resourceVersion": "9"}}
    kept.put(collection, {"apiVersion": "v1", "kind": "Thing", "metadata": metadata}, old)


@settings(max_examples=150, deadline=None)
@given(STEPS, STEPS, st.sampled_from(["", "x=on", "x!=on"]))
def test_a_list_and_the_changes_after_it_give_the_later_list(before: Any, after: Any, selector: str) -> None:
    kept = Store()
    collection = kept.collection(THING)
    selection = Selection(THING, selector)
    for name, what in before:
        _step(kept, collection, name, what)
    replica = {entry.name: entry.raw for entry in collection.entries() if selection.matches(entry)}
    listed_at, listed = kept.version, collection.entries()
    for name, what in after:
        _step(kept, collection, name, what)
    assert collection.as_of(listed_at) == listed
    for change in collection.since(listed_at):
        kind = kind_of(selection, change)
        if kind is None:
            continue
        shown = orjson.loads(change.line(kind))["object"]["metadata"]
        assert shown["resourceVersion"] == str(change.version)
        if kind == "DELETED":
            del replica[shown["name"]]
        else:
            assert (shown["name"] in replica) == (kind == "MODIFIED")
            replica[shown["name"]] = change.shown(kind)
    assert replica == {entry.name: entry.raw for entry in collection.entries() if selection.matches(entry)}

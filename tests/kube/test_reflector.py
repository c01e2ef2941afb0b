import asyncio
import gzip
import json
import random

import msgspec
import pytest
from aiohttp import web
from manifests import pod_manifest
from scripted_server import QUICK, answers, lists, refuses, scripted_client, watches

from cotide_kube.answers import ApiError
from cotide_kube.objects import PodObject
from cotide_kube.reflector import BackupRestored, Reflector


def pod(name, version, uid=None):
    """A pod of a version."""
    return pod_manifest(name, namespace="d", uid=uid or f"u-{name}", resourceVersion=str(version))


def event(kind, found):
    return {"type": kind, "object": found}


def bookmark(version):
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


GONE = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})


def reflector(client, **options):
    return Reflector(client, "/api/v1/pods", PodObject, backoff=QUICK, rng=random.Random(1), **options)


async def first(stream, count):
    """The first changes as (kind, name), within a bounded time."""
    seen = []
    async with asyncio.timeout(10):
        async for change in stream:
            seen.append((change.kind, change.object.metadata.name if change.object else None))
            if len(seen) == count:
                return seen
    return seen


def watch_versions(server):
    return [query.get("resourceVersion") for _, _, query, _, _ in server.requests if "watch" in query]


async def test_existing_objects_are_added_then_synced_then_followed():
    async with scripted_client() as (server, client):
        server.then(lists(pod("a", 1), token="t"), lists(pod("b", 2), version="2"))
        server.then(watches(event("ADDED", pod("c", 3)), event("MODIFIED", pod("a", 4)), event("DELETED", pod("b", 5))))
        seen = await first(reflector(client), 6)
    assert seen == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("SYNCED", None),
        ("ADDED", "c"),
        ("MODIFIED", "a"),
        ("DELETED", "b"),
    ]
    assert watch_versions(server)[0] == "2"


async def test_a_dropped_connection_resumes_from_the_last_version_without_listing():
    async with scripted_client() as (server, client):
        server.then(lists(version="1"), watches(event("ADDED", pod("a", 5)), then="abort"))
        server.then(watches(event("ADDED", pod("b", 9))))
        following = reflector(client)
        assert await first(following, 3) == [("SYNCED", None), ("ADDED", "a"), ("ADDED", "b")]
    assert watch_versions(server)[:2] == ["1", "5"]
    assert following.lists == 1


async def test_a_bookmark_moves_the_version_on():
    async with scripted_client() as (server, client):
        server.then(lists(version="1"), watches(bookmark(40)), watches(event("ADDED", pod("a", 41))))
        await first(reflector(client), 2)
    assert watch_versions(server)[:2] == ["1", "40"]


async def test_its_version_is_the_one_up_to_which_everything_was_told():
    async with scripted_client() as (server, client):
        server.then(lists(pod("a", 1), version="3", token="t"), lists(version="3"))
        server.then(watches(event("DELETED", pod("a", 9))))
        following = reflector(client)
        versions = [following.version]
        async with asyncio.timeout(10):
            async for batch in following.batches():
                versions.append(following.version)
                if batch[-1].kind == "DELETED":
                    break
    assert versions == ["", "", "3", "9"]  # a chunk of a list is not all of it


@pytest.mark.parametrize("how", ["in the stream", "as the answer"])
async def test_a_version_that_is_too_old_lists_again_and_tells_the_difference(how):
    gone = watches(GONE) if how == "in the stream" else refuses(410, "Expired", "too old resource version")
    async with scripted_client() as (server, client):
        server.then(lists(pod("same", 1), pod("changed", 2), pod("vanished", 3), pod("again", 4), version="4"), gone)
        server.then(
            lists(pod("same", 1), pod("changed", 8), pod("again", 9, uid="other"), pod("new", 10), version="10")
        )
        server.then(watches(event("ADDED", pod("later", 11))))
        seen = await first(reflector(client), 12)
    assert seen[5:] == [
        ("DELETED", "vanished"),
        ("DELETED", "again"),
        ("MODIFIED", "changed"),
        ("ADDED", "again"),
        ("ADDED", "new"),
        ("SYNCED", None),
        ("ADDED", "later"),
    ]


async def test_a_silent_connection_is_given_up_and_watched_anew():
    async with scripted_client() as (server, client):
        server.then(lists(version="3"), watches(then="silence"), watches(event("ADDED", pod("a", 4))))
        assert await first(reflector(client, silence_seconds=0.1), 2) == [("SYNCED", None), ("ADDED", "a")]
    assert watch_versions(server)[:2] == ["3", "3"]


async def test_after_a_backup_was_restored_everything_is_told_anew():
    async with scripted_client() as (server, client):
        server.at = "90"
        server.then(lists(pod("same", 80), pod("other", 85), pod("gone", 95), version="100"), watches(then="abort"))
        # Version 85 is of other data now: it says nothing of whether the pod is the same.
        server.then(lists(pod("same", 80), pod("other", 85), version="90"), watches(event("ADDED", pod("new", 91))))
        following = reflector(client)
        seen = await first(following, 9)
    assert seen[3:] == [
        ("SYNCED", None),
        ("DELETED", "gone"),
        ("MODIFIED", "same"),
        ("MODIFIED", "other"),
        ("SYNCED", None),
        ("ADDED", "new"),
    ]
    assert watch_versions(server)[:2] == ["100", "90"]


async def test_who_keeps_more_than_the_collection_ends_when_versions_went_back():
    async with scripted_client() as (server, client):
        server.at = "9"
        server.then(lists(pod("a", 3), version="100"), watches(then="abort"))
        with pytest.raises(BackupRestored, match="is at version 9, and was at 100: a backup was restored"):
            await first(reflector(client, ends_when_restored=True), 3)


@pytest.mark.parametrize("at", ["100", "101", "1000", "", "of another kind"])
async def test_a_version_that_is_no_earlier_one_resumes(at):
    async with scripted_client() as (server, client):
        server.at, server.now = at, [pod("a", 100)]
        server.then(lists(version="99"), watches(event("ADDED", pod("a", 100)), then="abort"))
        server.then(watches(event("ADDED", pod("b", 1002))))
        following = reflector(client, ends_when_restored=True)
        assert await first(following, 3) == [("SYNCED", None), ("ADDED", "a"), ("ADDED", "b")]
    assert following.lists == 1


async def test_a_malformed_object_is_passed_over_and_counted():
    bad = pod("bad", 6)
    bad["spec"] = {"containers": 7}
    async with scripted_client() as (server, client):
        server.then(lists(pod("a", 1), version="1"))
        server.then(watches(event("ADDED", bad), b"{nonsense}\n", event("ADDED", pod("b", 7))))
        following = reflector(client)
        assert await first(following, 3) == [("ADDED", "a"), ("SYNCED", None), ("ADDED", "b")]
    assert following.malformed == 2


async def test_a_watch_goes_on_from_the_version_of_a_malformed_object():
    bad = pod("bad", 6)
    bad["spec"] = {"containers": 7}
    async with scripted_client() as (server, client):
        server.then(lists(version="1"), watches(event("ADDED", bad)), watches(event("ADDED", pod("b", 7))))
        await first(reflector(client), 2)
    assert watch_versions(server)[:2] == ["1", "6"]


async def test_an_object_that_is_unreadable_in_a_later_list_stays_as_it_was_told():
    """It exists: a deletion would free what it holds. One that was never told is left out."""
    bad, unknown = pod("a", 5), pod("unknown", 5)
    bad["spec"] = unknown["spec"] = {"containers": 7}
    async with scripted_client() as (server, client):
        server.then(lists(pod("a", 1), version="1"), watches(GONE))
        server.then(lists(bad, unknown, pod("b", 6), version="6"), watches(event("ADDED", pod("later", 7))))
        following = reflector(client)
        seen = await first(following, 5)
    assert seen == [("ADDED", "a"), ("SYNCED", None), ("ADDED", "b"), ("SYNCED", None), ("ADDED", "later")]
    assert following.malformed == 2


async def test_a_deletion_is_told_even_when_the_object_became_unreadable():
    bad = pod("a", 6)
    bad["spec"] = 7
    async with scripted_client() as (server, client):
        server.then(lists(pod("a", 1), version="1"), watches(event("DELETED", bad)))
        assert await first(reflector(client), 3) == [("ADDED", "a"), ("SYNCED", None), ("DELETED", "a")]


async def test_a_line_that_is_cut_off_is_read_again_after_resuming():
    async with scripted_client() as (server, client):
        server.then(lists(version="1"), watches(b'{"type": "ADDED", "object": {"meta', then="abort"))
        server.then(watches(event("ADDED", pod("a", 2))))
        following = reflector(client)
        assert await first(following, 2) == [("SYNCED", None), ("ADDED", "a")]
    assert following.malformed == 0
    assert watch_versions(server)[:2] == ["1", "1"]


async def test_failures_of_the_server_are_waited_for():
    async with scripted_client() as (server, client):
        server.then(lists(version="1"), refuses(500), refuses(429), watches(event("ADDED", pod("a", 2))))
        assert await first(reflector(client), 2) == [("SYNCED", None), ("ADDED", "a")]


async def test_failures_in_a_row_are_counted_until_a_list_is_read():
    counts = []

    async def unreadable(_request):
        counts.append(following.failures)
        return web.json_response([])

    async with scripted_client() as (server, client):
        server.then(unreadable, unreadable, unreadable, lists(version="3"))
        following = reflector(client)
        assert await first(following, 1) == [("SYNCED", None)]
    assert (counts, following.failures) == ([0, 1, 2], 0)


async def test_a_refusal_of_the_first_list_is_for_the_user():
    async with scripted_client() as (server, client):
        server.then(refuses(403, "Forbidden", "pods is forbidden"))
        with pytest.raises(ApiError, match="pods is forbidden"):
            await first(reflector(client), 1)


async def test_a_refusal_later_on_is_waited_for():
    async with scripted_client() as (server, client):
        server.then(lists(version="1"), refuses(403, "Forbidden", "not yet"), watches(event("ADDED", pod("a", 2))))
        assert await first(reflector(client), 2) == [("SYNCED", None), ("ADDED", "a")]


async def test_changes_that_arrive_together_come_in_one_batch():
    lines = b"".join(
        b'{"type":"ADDED","object":{"metadata":{"name":"p%d","resourceVersion":"%d"}}}\n' % (n, n) for n in range(50)
    )
    async with scripted_client() as (server, client):
        server.then(lists(version="1"), watches(lines))
        batches = []
        async with asyncio.timeout(10):
            async for batch in reflector(client).batches():
                batches.append(len(batch))
                if sum(batches) == 51:
                    break
    assert batches == [1, 50]


async def test_selectors_are_sent_with_lists_and_watches():
    async with scripted_client() as (server, client):
        server.then(lists(version="1"), watches(event("ADDED", pod("a", 2))))
        await first(reflector(client, label_selector="a=b", field_selector="spec.nodeName=n"), 2)
    for _, _, query, _, _ in server.requests[:2]:
        assert (query["labelSelector"], query["fieldSelector"]) == ("a=b", "spec.nodeName=n")


async def test_the_next_page_is_asked_for_before_this_one_is_read():
    order = []

    class Recording(Reflector):
        async def _page(self, query):
            order.append(("asked", query.get("continue")))
            return await super()._page(query)

    def keep(found):
        order.append(("read", found.metadata.name))
        return found

    async with scripted_client() as (server, client):
        server.then(lists(pod("a", 1), token="t"), lists(pod("b", 2), token="u"), lists(pod("c", 3), version="3"))
        seen = await first(Recording(client, "/api/v1/pods", PodObject, keep=keep), 4)
    assert seen == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), ("SYNCED", None)]
    assert order == [
        ("asked", None),
        ("asked", "t"),
        ("read", "a"),
        ("asked", "u"),
        ("read", "b"),
        ("read", "c"),
    ]


async def test_a_token_behind_the_items_or_inside_one_is_no_token_of_a_page_ahead():
    labelled = pod("a", 1)
    labelled["metadata"]["labels"] = {"continue": "nowhere"}
    behind = {"items": [labelled], "metadata": {"resourceVersion": "1", "continue": "t"}}
    async with scripted_client() as (server, client):
        server.then(answers(200, behind), answers(200, {"items": [pod("b", 2)], "metadata": {"resourceVersion": "2"}}))
        assert await first(reflector(client), 3) == [("ADDED", "a"), ("ADDED", "b"), ("SYNCED", None)]
        assert [query.get("continue") for _, _, query, _, _ in server.requests[:2]] == [None, "t"]


async def test_a_page_ahead_that_expired_starts_the_list_over_in_one_piece():
    async with scripted_client() as (server, client):
        server.then(lists(pod("a", 1), token="t"), refuses(410, "Expired"), lists(pod("a", 1), pod("b", 2)))
        assert await first(reflector(client), 3) == [("ADDED", "a"), ("ADDED", "b"), ("SYNCED", None)]
        assert "limit" not in server.requests[2][2]


async def test_what_is_kept_is_what_is_told():
    def keep(found):
        return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels={"kept": "yes"}))

    async with scripted_client() as (server, client):
        server.then(lists(pod("a", 1)), watches(event("MODIFIED", pod("a", 2)), event("DELETED", pod("a", 3))))
        changes = []
        async for change in reflector(client, keep=keep):
            changes.append(change)
            if len(changes) == 4:
                break
    assert [one.object.metadata.labels for one in changes if one.object] == [{"kept": "yes"}] * 3


async def test_lists_may_come_compressed_and_watches_do_not():
    async def compressed(request):
        body = json.dumps({"metadata": {"resourceVersion": "2"}, "items": [pod("a", 1)]}).encode()
        return web.Response(
            body=gzip.compress(body), headers={"Content-Encoding": "gzip", "Content-Type": "application/json"}
        )

    async with scripted_client() as (server, client):
        server.then(compressed, watches(event("ADDED", pod("b", 3))))
        assert await first(reflector(client), 3) == [("ADDED", "a"), ("SYNCED", None), ("ADDED", "b")]
    assert [headers["Accept-Encoding"] for *_, headers in server.requests[:2]] == ["gzip", "identity"]


async def test_a_first_list_is_told_chunk_by_chunk_and_not_twice_when_it_breaks_off():
    async with scripted_client() as (server, client):
        server.then(lists(pod("a", 1), pod("gone", 2), token="t"), answers(200, ["no list"]))
        server.then(lists(pod("a", 1), pod("b", 3), version="3"), watches(event("ADDED", pod("c", 4))))
        seen = []
        async with asyncio.timeout(10):
            async for batch in reflector(client).batches():
                seen.append([(change.kind, change.object and change.object.metadata.name) for change in batch])
                if len(seen) == 3:
                    break
    assert seen == [
        [("ADDED", "a"), ("ADDED", "gone")],
        [("DELETED", "gone"), ("ADDED", "b"), ("SYNCED", None)],
        [("ADDED", "c")],
    ]


async def test_a_first_list_that_expires_half_way_tells_the_difference_of_the_whole_one():
    async with scripted_client() as (server, client):
        server.then(lists(pod("a", 1), pod("gone", 2), token="t"), refuses(410, "Expired"))
        server.then(lists(pod("a", 5), pod("b", 3), version="5"), watches())
        assert await first(reflector(client), 6) == [
            ("ADDED", "a"),
            ("ADDED", "gone"),
            ("DELETED", "gone"),
            ("MODIFIED", "a"),
            ("ADDED", "b"),
            ("SYNCED", None),
        ]

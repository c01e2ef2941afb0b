"""Whether a server that was away still has the history that was told, or that of a backup."""

import asyncio
import random

import pytest
from manifests import pod_manifest
from scripted_server import QUICK, lists, scripted_client, watches

from cotide_kube import reflector as reflector_module
from cotide_kube.objects import NodeObject, PodObject
from cotide_kube.reflector import BackupRestored, Reflector


def pod(name, version, uid=None):
    """A pod of a version."""
    return pod_manifest(name, namespace="d", uid=uid or f"u-{name}", resourceVersion=str(version))


def event(kind, found):
    return {"type": kind, "object": found}


BOOKMARK = event("BOOKMARK", {"metadata": {"resourceVersion": "100"}})
ASKED = 12
"""Questions, more than the client itself repeats one that was answered 429."""
LATER = event("ADDED", pod("later", 130))


async def told(client, names, **options):
    """The changes up to one of the last of these names, as (kind, name); each is waited for within a bounded time."""
    options = {"ends_when_restored": True, **options}
    following = Reflector(client, "/api/v1/pods", PodObject, backoff=QUICK, rng=random.Random(1), **options)
    seen = []
    async with asyncio.timeout(10):
        async for change in following:
            seen.append((change.kind, change.object.metadata.name if change.object else None))
            if seen[-1][1] == names:
                return seen
    return seen


def told_of(server, *lines):
    """Let the server list pod `a` at 90, tell these lines, and break off."""
    server.at = "120"
    server.then(lists(pod("a", 90), version="95"), watches(*lines, then="abort"))


def watched_from(server):
    return [query.get("resourceVersion") for _, _, query, _, _ in server.requests if "watch" in query]


async def test_where_the_last_object_is_as_it_was_told_the_watch_goes_on():
    async with scripted_client() as (server, client):
        told_of(server, event("ADDED", pod("b", 97)))
        server.now = [pod("b", 97)]
        server.then(watches(LATER))
        assert await told(client, "later") == [("ADDED", "a"), ("SYNCED", None), ("ADDED", "b"), ("ADDED", "later")]
    assert watched_from(server) == ["95", "97"]


@pytest.mark.parametrize("since", [[pod("b", 118)], [pod("b", 118, uid="another")], []])
async def test_what_counts_of_an_object_that_changed_since_is_what_it_was(since):
    async with scripted_client() as (server, client):
        told_of(server, event("ADDED", pod("b", 97)))
        server.now, server.then_was = since, [pod("b", 97)]
        server.then(watches(LATER))
        await told(client, "later")
    assert watched_from(server) == ["95", "97"]
    assert server.peeked[-1][1]["resourceVersion"] == "97"


@pytest.mark.parametrize("was", [[], [pod("b", 80)], [pod("b", 97, uid="another")]])
async def test_versions_that_have_overtaken_hide_no_restored_backup(was):
    async with scripted_client() as (server, client):
        told_of(server, event("MODIFIED", pod("b", 97)))
        server.now = server.then_was = was
        with pytest.raises(
            BackupRestored, match="had no d/b at version 97, although it reported it before: a backup was restored"
        ):
            await told(client, "later")


async def test_an_object_that_was_listed_and_deleted_since_must_have_been_there_too():
    async with scripted_client() as (server, client):
        told_of(server, event("DELETED", pod("a", 97)))
        with pytest.raises(
            BackupRestored, match="had no d/a at version 90, although it reported it before: a backup was restored"
        ):
            await told(client, "later")


async def test_who_keeps_only_the_collection_is_told_all_of_the_other_history():
    async with scripted_client() as (server, client):
        told_of(server, event("ADDED", pod("b", 97)))
        server.then(lists(pod("a", 90), version="120"), watches(LATER))
        seen = await told(client, "later", ends_when_restored=False)
    assert seen[3:] == [("DELETED", "b"), ("MODIFIED", "a"), ("SYNCED", None), ("ADDED", "later")]


@pytest.mark.parametrize("status", [410, 400, 403])
async def test_where_the_version_is_no_more_to_be_had_all_is_listed_again(status):
    async with scripted_client() as (server, client):
        told_of(server, event("ADDED", pod("b", 97)))
        server.then_was = status
        server.then(lists(pod("a", 90), version="120"), watches(LATER))
        seen = await told(client, "later")
    assert seen[3:] == [("DELETED", "b"), ("SYNCED", None), ("ADDED", "later")]


async def test_where_the_question_itself_is_refused_all_is_listed_again():
    async with scripted_client() as (server, client):
        told_of(server, event("ADDED", pod("b", 97)))
        server.now = 403
        server.then(lists(pod("a", 90), pod("b", 97), version="120"), watches(LATER))
        seen = await told(client, "later")
    assert seen[3:] == [("SYNCED", None), ("ADDED", "later")]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_that_can_not_say_is_asked_again(status):
    async with scripted_client() as (server, client):
        told_of(server, event("ADDED", pod("b", 97)))
        server.then_was = status
        server.then(watches(LATER))
        telling = asyncio.ensure_future(told(client, "later"))
        async with asyncio.timeout(10):
            while len([query for _, query in server.peeked if "resourceVersionMatch" in query]) < ASKED:
                await asyncio.sleep(0)
        server.then_was = [pod("b", 97)]
        await telling
    assert watched_from(server) == ["95", "97"]


async def test_a_backup_from_between_the_last_object_and_a_bookmark_hides_nothing():
    # What the other history has between 97 and 100 is told, too: a watch from the bookmark would pass over it.
    async with scripted_client() as (server, client):
        told_of(server, event("ADDED", pod("b", 97)), BOOKMARK)
        server.now = [pod("b", 97)]
        server.then(watches(event("ADDED", pod("hidden", 99)), LATER))
        assert ("ADDED", "hidden") in await told(client, "later")
    assert watched_from(server) == ["95", "97"]


@pytest.mark.parametrize("lines", [(), (event("ADDED", pod("b", 97)), event("DELETED", pod("b", 98)))])
async def test_what_was_listed_or_deleted_last_is_not_listed_again_where_the_server_was_there(lines, monkeypatch):
    monkeypatch.setattr(reflector_module, "STEADY_SECONDS", 0.0)
    async with scripted_client() as (server, client):
        server.at, server.now, server.then_was = "120", [], [pod("b", 97), pod("a", 90)]
        server.then(lists(pod("a", 90), version="95"), watches(*lines), watches(LATER))
        seen = await told(client, "later")
    assert [name for kind, name in seen if kind == "SYNCED"] == [None]


@pytest.mark.parametrize("lines", [(), (event("ADDED", pod("b", 97)), event("DELETED", pod("b", 98)))])
async def test_what_was_listed_or_deleted_last_is_listed_again(lines):
    async with scripted_client() as (server, client):
        told_of(server, *lines)
        server.then_was = [pod("b", 97), pod("a", 90)]
        server.then(lists(pod("a", 90), pod("back", 60), version="120"), watches(LATER))
        seen = await told(client, "later")
    assert seen[-3:] == [("ADDED", "back"), ("SYNCED", None), ("ADDED", "later")]


async def test_a_list_with_an_object_at_an_earlier_version_is_of_a_backup():
    async with scripted_client() as (server, client):
        told_of(server)
        server.then_was = 410
        server.then(lists(pod("a", 60), version="120"))
        with pytest.raises(BackupRestored, match="d/a is at version 60, and was at 90: a backup was restored"):
            await told(client, "later")


async def test_an_object_whose_deletion_was_told_comes_back_with_a_backup_only():
    async with scripted_client() as (server, client):
        told_of(server, event("DELETED", pod("a", 98)))
        server.then_was = [pod("a", 90)]
        server.then(lists(pod("a", 90), version="120"))
        with pytest.raises(
            BackupRestored, match="d/a exists, although its deletion was reported: a backup was restored"
        ):
            await told(client, "later")


async def test_what_left_a_selection_may_come_back():
    async with scripted_client() as (server, client):
        told_of(server, event("DELETED", pod("a", 98)))
        server.then_was = [pod("a", 90)]
        server.then(lists(pod("a", 110), version="120"), watches(LATER))
        seen = await told(client, "later", label_selector="x=y")
    assert seen[2:] == [("DELETED", "a"), ("ADDED", "a"), ("SYNCED", None), ("ADDED", "later")]


async def test_an_object_that_only_a_list_told_of_must_have_been_there_too():
    async with scripted_client() as (server, client):
        told_of(server)
        with pytest.raises(BackupRestored, match="had no d/a at version 90, although it reported it before"):
            await told(client, "later")


async def test_an_object_is_looked_for_by_its_key():
    async with scripted_client() as (server, client):
        told_of(server, event("ADDED", pod("b", 97)))
        server.now = [pod("b", 97)]
        server.then(watches(LATER))
        await told(client, "later", field_selector="spec.nodeName=n", label_selector="x=y")
    path, query = server.peeked[0]
    assert path == "/api/v1/namespaces/d/pods"
    assert query == {"labelSelector": "x=y", "fieldSelector": "spec.nodeName=n,metadata.name=b", "limit": "1"}


async def test_an_object_without_a_namespace_is_looked_for_in_its_collection():
    node = {"metadata": {"name": "n", "uid": "u-n", "resourceVersion": "97"}}
    async with scripted_client() as (server, client):
        server.at, server.now = "120", [node]
        server.then(lists(version="95"), watches(event("ADDED", node), then="abort"))
        server.then(watches(event("MODIFIED", {"metadata": {"name": "n", "uid": "u-n", "resourceVersion": "130"}})))
        following = Reflector(client, "/api/v1/nodes", NodeObject, backoff=QUICK, rng=random.Random(1))
        async with asyncio.timeout(10):
            async for change in following:
                if change.kind == "MODIFIED":
                    break
    assert server.peeked == [("/api/v1/nodes", {"fieldSelector": "metadata.name=n", "limit": "1"})]

import asyncio
import gzip
import socket
import time

import orjson
import pytest
from aiohttp import web
from scripted_server import QUICK, answers, hangs_up, lists, refuses, scripted_client, scripted_server

from cotide_core.errors import ClusterError
from cotide_kube import transport
from cotide_kube.answers import ApiError
from cotide_kube.backoff import Backoff
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials, FileToken
from cotide_kube.transport import MAX_TRIES

POD = "/api/v1/namespaces/shop/pods/web"


async def test_a_binding_names_uid_node_annotations_and_labels():
    async with scripted_client() as (server, client):
        server.then(answers(201))
        answer = await client.bind(
            "shop", "web", "u1", "n1", {"cotide.dev/decision": "{}"}, {"cotide.dev/class": "batch"}
        )
        assert answer.ok
        method, path, _, body, headers = server.requests[0]
        assert (method, path) == ("POST", f"{POD}/binding")
        assert headers["Content-Type"] == "application/json"
        sent = orjson.loads(body)
        assert sent["metadata"]["uid"] == "u1"
        assert sent["metadata"]["annotations"] == {"cotide.dev/decision": "{}"}
        assert sent["metadata"]["labels"] == {"cotide.dev/class": "batch"}
        assert sent["target"]["name"] == "n1"


async def test_a_server_that_stands_behind_a_path_is_asked_below_it():
    async with scripted_server() as server:
        server.then(answers(201), answers())
        async with KubeClient(Credentials(f"{server.url}/k8s/clusters/c-1")) as client:
            await client.bind("shop", "web", "u1", "n1")
            await client.get(POD, {"resourceVersion": "0"})
    asked = [path.partition("?")[0] for _, path, *_ in server.requests]
    assert asked == [f"/k8s/clusters/c-1{POD}/binding", f"/k8s/clusters/c-1{POD}"]


async def test_a_refused_binding_is_a_value_and_is_not_tried_again():
    async with scripted_client() as (server, client):
        server.then(refuses(409, "Conflict", 'pod web is already assigned to node "n2"'))
        answer = await client.bind("shop", "web", "u1", "n1")
        assert (answer.code, answer.reason, answer.ok) == (409, "Conflict", False)
        assert len(server.requests) == 1


async def test_a_binding_whose_answer_was_lost_is_found_to_be_our_own_success():
    async with scripted_client() as (server, client):
        server.then(hangs_up(), refuses(409, "Conflict", 'pod web is already assigned to node "n1"'))
        assert (await client.bind("shop", "web", "u1", "n1")).code == 201


async def test_a_conflict_on_the_first_try_is_never_taken_for_our_own_success():
    async with scripted_client() as (server, client):
        server.then(refuses(409, "Conflict", 'pod web is already assigned to node "n1"'))
        assert (await client.bind("shop", "web", "u1", "n1")).code == 409


async def test_a_binding_that_no_server_answers_is_code_0():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with KubeClient(Credentials(url), backoff=QUICK) as client:
            answer = await client.bind("shop", "web", "u1", "n1")
    assert answer.code == 0
    assert "is unreachable" in answer.message


async def test_an_eviction_that_a_budget_forbids_is_an_answer_and_not_tried_again():
    async with scripted_client() as (server, client):
        server.then(refuses(429, "TooManyRequests", "Cannot evict pod", {"Retry-After": "10"}))
        answer = await client.evict("shop", "web", "u1")
        assert (answer.code, answer.retry_after_seconds) == (429, 10.0)
        assert len(server.requests) == 1
        assert orjson.loads(server.requests[0][3])["deleteOptions"]["preconditions"] == {"uid": "u1"}


async def test_a_busy_server_is_asked_again_after_the_time_it_named():
    async with scripted_client() as (server, client):
        server.then(refuses(429, "TooManyRequests", "later", {"Retry-After": "1"}), answers(201, {"kind": "Pod"}))
        began = time.monotonic()
        assert await client.create("/api/v1/namespaces/shop/pods", {"kind": "Pod"}) == {"kind": "Pod"}
        assert time.monotonic() - began >= 1.0


async def test_a_creation_is_not_repeated_after_an_error_that_may_have_carried_it_out():
    async with scripted_client() as (server, client):
        server.then(refuses(500, "InternalError", "who knows"), answers(201))
        with pytest.raises(ApiError) as caught:
            await client.create("/api/v1/namespaces/shop/pods", {"kind": "Pod"})
        assert caught.value.status == 500
        server.requests.clear()
        server.steps.clear()
        server.then(hangs_up(), answers(201))
        with pytest.raises(ClusterError, match="unreachable"):
            await client.create("/api/v1/namespaces/shop/pods", {"kind": "Pod"})
        assert len(server.requests) == 1


async def test_reads_and_patches_are_repeated_until_the_server_recovers():
    async with scripted_client() as (server, client):
        server.then(refuses(503), hangs_up(), answers(200, {"a": 1}))
        assert await client.get(POD) == {"a": 1}
        server.then(refuses(500), answers(200, {"a": 2}))
        assert await client.patch(POD, {"metadata": {}}) == {"a": 2}


async def test_a_json_patch_is_repeated_only_with_a_test_in_it():
    add = {"op": "add", "path": "/spec/list/-", "value": 1}
    async with scripted_client() as (server, client):
        server.then(refuses(500), answers(200))
        with pytest.raises(ApiError):
            await client.patch(POD, [add], "json")
        server.steps.clear()
        server.then(refuses(500), answers(200, {"a": 1}))
        assert await client.patch(POD, [{"op": "test", "path": "/a", "value": 0}, add], "json") == {"a": 1}


async def test_retries_are_bounded():
    async with scripted_client() as (server, client):
        server.then(*[refuses(503, "ServiceUnavailable", "down")] * 20)
        with pytest.raises(ApiError, match="503 ServiceUnavailable: down"):
            await client.get(POD)
        assert len(server.requests) == MAX_TRIES


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        ("merge", "application/merge-patch+json"),
        ("strategic", "application/strategic-merge-patch+json"),
        ("json", "application/json-patch+json"),
        ("apply", "application/apply-patch+yaml"),
    ],
)
async def test_each_kind_of_patch_has_its_content_type(kind, content_type):
    async with scripted_client() as (server, client):
        server.then(answers())
        await client.patch(POD, [] if kind == "json" else {}, kind)
        assert server.requests[0][4]["Content-Type"] == content_type
        assert server.requests[0][2] == ({"fieldManager": "cotide", "force": "true"} if kind == "apply" else {})


async def test_a_forbidden_request_says_what_is_missing():
    async with scripted_client() as (server, client):
        server.then(refuses(403, "Forbidden", 'pods is forbidden: User "u" cannot list'))
        with pytest.raises(ClusterError) as caught:
            await client.get("/api/v1/pods")
        assert 'User "u" cannot list' in str(caught.value)
        assert "deploy/rbac" in str(caught.value)


async def test_an_expired_token_is_fetched_anew_once(tmp_path):
    (tmp_path / "token").write_text("old")
    token = FileToken(tmp_path / "token")
    async with scripted_client(token=token) as (server, client):
        server.then(refuses(401, "Unauthorized"), answers(200, {"a": 1}))
        token()
        (tmp_path / "token").write_text("new")
        assert await client.get(POD) == {"a": 1}
        assert [headers["Authorization"] for *_, headers in server.requests] == ["Bearer old", "Bearer new"]
        server.then(refuses(401, "Unauthorized"), refuses(401, "Unauthorized"), answers())
        with pytest.raises(ApiError, match="credentials are not accepted"):
            await client.get(POD)
        assert len(server.requests) == 4


def named(name):
    return {"metadata": {"name": name}}


@pytest.mark.parametrize("page", [{}, {"items": [None]}, {"items": [{}]}, {"items": [{"metadata": {"name": ""}}]}])
async def test_what_is_no_list_is_refused_and_not_taken_for_an_empty_one(page):
    async with scripted_client() as (server, client):
        server.then(answers(200, page))
        with pytest.raises(ClusterError, match="GET /api/v1/pods is no list of objects"):
            await client.list("/api/v1/pods")


async def test_a_line_of_a_watch_that_does_not_end_is_given_up(monkeypatch):
    monkeypatch.setattr(transport, "UNENDED_BYTES", 100_000)

    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 10_000)

    async with scripted_client() as (server, client):
        server.then(endless)
        with pytest.raises(ClusterError, match="watch /api/v1/pods: a line goes on for more than 100000 bytes"):
            async for _ in client.watch("/api/v1/pods", {}, 60.0):
                pass


async def test_a_list_is_fetched_in_chunks():
    async with scripted_client() as (server, client):
        server.then(lists(named("a"), token="more"), lists(named("b")))
        assert await client.list("/api/v1/pods", {"labelSelector": "a=b,c in (d)"}) == [named("a"), named("b")]
        assert server.requests[1][2] == {"labelSelector": "a=b,c in (d)", "limit": "500", "continue": "more"}


async def test_no_answer_is_asked_for_compressed():
    async with scripted_client() as (server, client):
        server.then(lists())
        await client.list("/api/v1/pods")
        assert server.requests[0][4]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("parts", [(b"aaaa",), (b"",), (b"aaaa", b"bb")], ids=["one", "empty", "two"])
async def test_a_compressed_answer_is_unpacked_whole_also_where_it_is_of_several_parts(parts):
    body = b"".join(map(gzip.compress, parts))

    async def packed(request):
        return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    async with scripted_client() as (server, client):
        server.then(packed)
        assert await client.request("GET", "/api/v1/pods", compressed=True) == b"".join(parts)


@pytest.mark.parametrize("spoil", [lambda body: body[:-9], lambda _: b"no gzip", lambda body: body[:12] + b"\0" * 9])
async def test_a_compressed_answer_that_came_spoilt_is_asked_for_again(spoil):
    whole = gzip.compress(b'{"n": 1}' * 100)

    def packed(body):
        async def step(request):
            return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

        return step

    async with scripted_client() as (server, client):
        server.then(packed(spoil(whole)), packed(whole))
        assert await client.request("GET", "/api/v1/pods", compressed=True) == b'{"n": 1}' * 100
        server.then(*[packed(spoil(whole))] * MAX_TRIES)
        with pytest.raises(ClusterError, match="its answer can't be unpacked"):
            await client.request("GET", "/api/v1/pods", compressed=True)


async def test_a_list_whose_continuation_expired_starts_over_in_one_piece():
    async with scripted_client() as (server, client):
        server.then(lists(named("a"), token="more"), refuses(410, "Expired"), lists(named("a"), named("b")))
        assert await client.list("/api/v1/pods") == [named("a"), named("b")]
        assert server.requests[2][2] == {}


async def test_a_deletion_carries_grace_and_uid():
    async with scripted_client() as (server, client):
        server.then(answers())
        await client.delete(POD, grace_seconds=0, uid="u1")
        options = orjson.loads(server.requests[0][3])
        assert (options["gracePeriodSeconds"], options["preconditions"]) == (0, {"uid": "u1"})


async def test_a_server_that_never_answers_is_given_up():
    async def sleeps(request):
        await asyncio.sleep(3600)

    async with scripted_client(timeout_seconds=0.05) as (server, client):
        server.then(*[sleeps] * MAX_TRIES)
        with pytest.raises(ClusterError, match="no answer within"):
            await client.get(POD)


async def test_an_answer_that_is_no_json_is_a_clear_error():
    from aiohttp import web

    async def page(request):
        return web.Response(text="<html>captive portal</html>")

    async with scripted_client() as (server, client):
        server.then(page)
        with pytest.raises(ClusterError, match="is no JSON"):
            await client.get(POD)


def test_waits_grow_and_are_capped_and_jittered():
    import random

    backoff = Backoff(initial_seconds=1.0, cap_seconds=8.0)
    for failures, whole in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 8.0), (5000, 8.0)):
        waits = [backoff.wait_seconds(failures, random.Random(seed)) for seed in range(50)]
        assert min(waits) >= whole / 2
        assert max(waits) <= whole
        assert len(set(waits)) > 10


async def test_a_fence_stops_what_writes_before_each_try_and_lets_reads_and_the_unfenced_pass():
    async with scripted_client() as (server, client):
        asked = 0

        def fence():
            nonlocal asked
            asked += 1
            if asked > 2:
                raise ClusterError("not ours any more")

        client.fence = fence
        server.then(refuses(503, "ServiceUnavailable", "later"), answers(200, {}), answers(201, {}))
        with pytest.raises(ClusterError, match="not ours any more"):
            await client.patch(POD, {})  # the first try was let through (asked twice), the second was not
        assert (asked, len(server.requests)) == (3, 1)
        assert (await client.bind("shop", "web", "u1", "n1")).message == "not ours any more"
        await client.get(POD)
        await client.unfenced().create(POD, {})
        assert (asked, [request[0] for request in server.requests]) == (4, ["PATCH", "GET", "POST"])


@pytest.mark.parametrize(("status", "uncertain"), [(429, False), (503, True)])
async def test_of_a_binding_that_the_fence_holds_back_only_the_tries_before_may_have_been_carried_out(
    status: int, uncertain: bool
):
    async with scripted_client() as (server, client):
        open_for = iter([True, True])  # one try

        def fence():
            if not next(open_for, False):
                raise ClusterError("not ours any more")

        client.fence = fence
        server.then(refuses(status, "Reason", "later"))
        answer = await client.bind("shop", "web", "u1", "n1")
        assert (answer.code, answer.reason, answer.uncertain) == (0, "HeldBack", uncertain)


async def test_a_fence_that_closes_before_the_body_is_written_stops_the_request():
    """A process may be stopped between the two: the first question is answered by who led, the second is not."""
    async with scripted_client() as (server, client):
        answers_of_fence = iter([True, False])

        def fence():
            if not next(answers_of_fence):
                raise ClusterError("not ours any more")

        client.fence = fence
        server.then(answers(200, {}))
        with pytest.raises(ClusterError, match="not ours any more"):
            await client.patch(POD, {})
        assert server.requests == []
        await client.get(POD)  # the next connection is as good as before
        assert [request[0] for request in server.requests] == ["GET"]

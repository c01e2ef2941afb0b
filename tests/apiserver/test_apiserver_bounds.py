"""What one request may cost, and how deep an object may be: nothing small keeps the server from its other clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import requests
from emulator_client import PODS, pod, serving

from cotide_operator.apis.crd_generation import JOB, definition
from cotide_sim.apiserver.http.http_protocol import BODY_LIMIT, HEAD_LIMIT, Connection, Connections, Exchange, Request
from cotide_sim.apiserver.patch import strategic_patch as strategic
from cotide_sim.apiserver.patch.json_patch import MAX_COPIED_BYTES, MAX_OPERATIONS, json_patch
from cotide_sim.apiserver.patch.strategic_patch import strategic_patch
from cotide_sim.apiserver.refusals import Refusal
from cotide_sim.apiserver.testing import server_in_thread

WATCH = "/api/v1/namespaces?watch=1"
JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def test_copies_in_a_json_patch_do_not_double_an_object_for_ever() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(40)]
    with pytest.raises(Refusal, match="the accumulated size increase of copy is") as refused:
        json_patch({"a": {"text": "x"}}, doubling)
    assert refused.value.code == 422
    text = "x" * (MAX_COPIED_BYTES // 4)
    assert json_patch({"a": text}, [{"op": "copy", "from": "/a", "path": f"/{n}"} for n in range(3)])["2"] == text


def test_a_json_patch_has_no_more_operations_than_on_a_real_server() -> None:
    one = {"op": "add", "path": "/a", "value": 1}
    with pytest.raises(Refusal, match="maximum operations in a JSON patch is 10000, got 10001") as refused:
        json_patch({}, [one] * (MAX_OPERATIONS + 1))
    assert refused.value.code == 413
    assert json_patch({}, [one] * 100) == {"a": 1}


def test_a_long_list_in_a_strategic_patch_is_looked_up_and_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each item is asked for its key a few times, however many there are."""
    asked = 0
    token = strategic._token

    def counted(mark: Any) -> Any:
        nonlocal asked
        asked += 1
        return token(mark)

    monkeypatch.setattr(strategic, "_token", counted)
    env = [{"name": f"E{number}", "value": "v"} for number in range(2000)]
    before = {"env": [{"name": f"E{number}", "value": "w"} for number in range(1000, 3000)]}
    found = strategic_patch(before, {"env": env, "$setElementOrder/env": [{"name": one["name"]} for one in env]})
    assert [one["name"] for one in found["env"][:2000]] == [one["name"] for one in env]
    assert len(found["env"]) == 3000
    assert asked < 20 * 3000
    found = strategic_patch({"finalizers": ["a", "b"]}, {"finalizers": ["c", "a", "c"]})
    assert found == {"finalizers": ["c", "a", "b"]}


@pytest.mark.parametrize(
    "query",
    ["timeoutSeconds=-1", "timeoutSeconds=soon", f"timeoutSeconds={10**30}", "resourceVersion=%C2%B2"],
)
async def test_a_watch_that_cannot_be_is_refused_before_its_stream_begins(query: str) -> None:
    async with serving() as (server, call):
        code, answer = await call("GET", f"{WATCH}&{query}")
        assert (code, answer["reason"]) == (400, "BadRequest")
        assert len(server.cluster.watches) == 0


@pytest.mark.parametrize("token", ["W1sxXSwxLDFd", "WzEsLTEsMV0", "WyIxIiwxLDFd", "NQ", "e30"])
async def test_a_token_of_somebody_elses_making_is_refused(token: str) -> None:
    async with serving() as (_, call):
        code, answer = await call("GET", f"/api/v1/namespaces?continue={token}")
        assert (code, answer["message"]) == (400, "continue key is not valid: it was not made by this server")


async def test_an_eviction_that_is_only_tried_leaves_the_pod() -> None:
    async with serving() as (_, call):
        await call("POST", PODS, pod("a"))
        assert (await call("POST", f"{PODS}/a/eviction?dryRun=All", {"metadata": {"name": "a"}}))[0] == 201
        code, found = await call("GET", f"{PODS}/a")
        assert (code, "deletionTimestamp" in found["metadata"]) == (200, False)
        assert (await call("POST", f"{PODS}/a/eviction", {"metadata": {"name": "a"}}))[0] == 201
        assert (await call("GET", f"{PODS}/a"))[0] == 404


class Transport(asyncio.Transport):
    """Notes what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closed = b"", False

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True


def connection() -> tuple[Connection, Transport, list[bytes]]:
    bodies: list[bytes] = []

    def dispatch(request: Request, exchange: Exchange) -> None:
        bodies.append(request.body)

    made, transport = Connection(dispatch, Connections()), Transport()
    made.connection_made(transport)
    made.data_received(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    return made, transport, bodies


def test_a_body_in_crumbs_is_read_once_and_held_no_longer_than_it_is() -> None:
    made, _, bodies = connection()
    for _ in range(1000):
        made.data_received(b"1;note=no\r\nx\r\n")
        assert len(made._buffer) == 0
    for data in (b"2\r\nyz", b"\r\n0\r\nTrailer: 1\r", b"\n\r", b"\nGET"):
        made.data_received(data)
    assert bodies == [b"x" * 1000 + b"yz"]
    assert bytes(made._buffer) == b"GET"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"1;" + b"x" * (HEAD_LIMIT + 1), b"431"),
        (b"0\r\n" + b"a: b\r\n" * (HEAD_LIMIT // 6 + 2), b"431"),
        (b"%x\r\n" % (BODY_LIMIT + 1), b"413"),
        (b"-1\r\n", b"413"),
        (b"zz\r\n", b"400"),
    ],
)
def test_a_chunk_beyond_all_bounds_ends_the_connection(data: bytes, status: bytes) -> None:
    made, transport, bodies = connection()
    made.data_received(data)
    assert transport.written.split()[1] == status
    assert transport.closed
    assert bodies == []


def deep_job(depth: int) -> bytes:
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    return (
        b'{"apiVersion":"cotide.dev/v1alpha1","kind":"Job","metadata":{"name":"deep"},"spec":{"template":{"spec":'
        b'{"containers":[{"name":"c","image":"i","x":' + nested + b"}]}}}}"
    )


@pytest.mark.parametrize(("depth", "code"), [(300, 201), (2000, 201), (9994, 201), (9995, 400)])
def test_an_object_is_taken_up_to_ten_thousand_levels(depth: int, code: int) -> None:
    """Six levels are around the part that is nested here."""
    with server_in_thread() as server:
        assert requests.post(server.url + DEFINITIONS, json=definition(JOB), timeout=30).status_code == 201
        kind = {"Content-Type": "application/json"}
        made = requests.post(server.url + JOBS, data=deep_job(depth), headers=kind, timeout=30)
        assert made.status_code == code
        if code == 400:
            assert "max depth" in made.text
            return
        assert requests.get(server.url + JOBS, timeout=30).content.count(b'{"a":') >= depth
        merge = {"Content-Type": "application/merge-patch+json"}
        patch = b'{"metadata":{"labels":{"x":"y"}}}'
        patched = requests.patch(f"{server.url}{JOBS}/deep", data=patch, headers=merge, timeout=30)
        assert patched.status_code == 200

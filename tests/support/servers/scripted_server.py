"""A tiny API server for the client's tests: it answers each request with the next step of a script."""

import asyncio
import json
from collections import deque
from contextlib import asynccontextmanager

from aiohttp import web

from cotide_kube.backoff import Backoff
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials

QUICK = Backoff(initial_seconds=0.001, cap_seconds=0.002)


class ScriptedServer:
    """Holds the steps still to come and the requests that came; an empty script answers 404.

    A list of one object is no step: it asks at which version the server is, and `at` says so; empty for nobody knows.
    One of a certain name is answered with those of `now`; as of a version with those of `then_was`, or, where that is a
    number, refused with it.
    """

    def __init__(self):
        self.steps = deque()
        self.requests = []
        self.url = ""
        self.at = ""
        self.now = []
        self.then_was = []
        self.peeked = []

    def then(self, *steps):
        self.steps.extend(steps)
        return self

    async def handle(self, request):
        if request.query.get("limit") == "1":
            return self._peek(request)
        body = await request.read()
        self.requests.append((request.method, request.path, dict(request.query), body, dict(request.headers)))
        if not self.steps:
            return web.json_response({"reason": "NotFound", "message": "the script is over"}, status=404)
        return await self.steps.popleft()(request)

    def _peek(self, request):
        query = dict(request.query)
        self.peeked.append((request.path, query))
        name = query.get("fieldSelector", "").rpartition("metadata.name=")[2]
        there = self.then_was if "resourceVersionMatch" in query else self.now
        if isinstance(there, int):
            return web.json_response({"code": there, "reason": "", "message": "not to be had"}, status=there)
        items = [one for one in there if one["metadata"]["name"] == name]
        at = query.get("resourceVersion", self.at)
        return web.json_response({"metadata": {"resourceVersion": at}, "items": items})


def answers(code=200, body=None, headers=None):
    async def step(request):
        return web.json_response({} if body is None else body, status=code, headers=headers)

    return step


def refuses(code, reason="", message="", headers=None):
    return answers(code, {"kind": "Status", "code": code, "reason": reason, "message": message}, headers)


def hangs_up():
    """Close the connection after reading the request, without an answer."""

    async def step(request):
        request.transport.close()
        return web.Response()

    return step


def lists(*objects, version="1", token=""):
    return answers(200, {"metadata": {"resourceVersion": version, "continue": token}, "items": list(objects)})


def watches(*lines, then="close"):
    """Send lines (objects or raw bytes), then close, abort the connection, or stay open and silent."""

    async def step(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        if then == "abort":
            request.transport.abort()
        elif then == "silence":
            await asyncio.sleep(3600)
        return response

    return step


@asynccontextmanager
async def scripted_server():
    server = ScriptedServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def scripted_client(**options):
    async with scripted_server() as server:
        token = options.pop("token", None)
        given = {} if token is None else {"token": token}
        async with KubeClient(Credentials(server.url, **given), backoff=QUICK, seed=1, **options) as client:
            yield server, client

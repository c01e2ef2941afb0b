"""A stand-in for a Prometheus that misbehaves: answers each query as the test says."""

from __future__ import annotations

import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from aiohttp import web

from cotide_operator.cache.object_cache import CustomObject, ObjectCache, PodObject


def vector(*series: tuple[dict[str, str], object]) -> dict[str, Any]:
    """Return the answer to an instant query: labels and values."""
    result = [{"metric": labels, "value": [time.time(), str(value)]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


@contextlib.asynccontextmanager
async def stand_in(handler: Callable[[web.Request], Any], trust: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve every GET and POST as the handler says; yield the url."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
    try:
        yield f"http{'s' if trust else ''}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def query_of(request: web.Request) -> str:
    """Return the PromQL of a request, however it was sent."""
    return str(request.query.get("query") or (await request.post())["query"])


async def stream_series(request: web.Request, count: int, at_a_time: int = 1000) -> web.StreamResponse:
    """Answer with very many series (the same thousand again and again), for as long as somebody reads."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    series = [
        {"metric": {"namespace": "a", "pod": f"web-{at}", "padding": "x" * 64}, "value": [1.0, "1"]}
        for at in range(at_a_time)
    ]
    piece = json.dumps(series).encode()[1:-1]
    with contextlib.suppress(ConnectionError):
        await response.write(b'{"status":"success","data":{"resultType":"vector","result":[' + piece)
        for _ in range(count // at_a_time - 1):
            await response.write(b"," + piece)
        await response.write(b"]}}")
    return response


def put_workload(cache: ObjectCache, key: str, *, pods: int = 1, **qos: str) -> None:
    """Put a Workload and its pods ``NAME-0`` ... into a cache."""
    namespace, name = key.split("/")
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": key},
        "spec": {"qos": qos, "selector": {"matchLabels": {"app": name}}},
    }
    cache.apply("workloads", "ADDED", msgspec.convert(body, CustomObject))
    for index in range(pods):
        metadata = {"name": f"{name}-{index}", "namespace": namespace, "uid": f"{key}-{index}", "labels": {"app": name}}
        cache.apply("pods", "ADDED", msgspec.convert({"metadata": metadata}, PodObject))

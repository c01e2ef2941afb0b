"""A Prometheus that leaves out some of what it is asked for: series, labels, numbers, the end of an answer.

Used by `run_context` for plans that measure. Each pod of the run's own service takes `RATE` requests a second, in
every answer that tells of it at all. Invariant of the run: whoever knows that rate lets no other pod onto a node of the
service, whatever is missing from later answers: what nobody tells is not nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from aiohttp import web
from invariant_checker import ENDED, CheckedPod, InvariantChecker
from prometheus_stand_in import query_of, stand_in, vector

RATE: Final = 100_000.0
"""Requests per second of each pod: half a core of batch on a node of 4 (load .525, p .37) is let in by the threshold of
.45, one core (load .9, p .84) is not; at a rate of none both are."""
SECTION: Final = """\
metricsSource:
  prometheus: {{url: '{url}', workloadQueries: {{rps: 'sum by (namespace, pod) (requests_per_second)'}}}}
  intervalSeconds: 0.1
  staleAfterSeconds: 0.5
"""
KNOWN_AFTER: Final = 3
"""Whole answers after which an operator has taken one; two may be on their way. Chosen."""
WAYS: Final = ("missing", "some missing", "labels", "numbers", "torn", "half", "warnings", "refused")


class PartialPrometheus:
    """The metrics of one run.

    Attributes
    ----------
    says : one of `WAYS`; empty while answers are whole.
    whole : whole answers that told of the service.
    left_out : answers that were not whole.
    """

    def __init__(self, checker: InvariantChecker, namespace: str) -> None:
        self._checker, self._namespace = checker, namespace
        self.says = ""
        self.whole = self.left_out = 0
        self.section = ""
        self.breaches: list[str] = []
        checker.listeners.append(self._changed)

    @property
    def known(self) -> bool:
        """Whether the operator has read how busy the service is."""
        return self.whole >= KNOWN_AFTER

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with stand_in(self._answer) as url:
            self.section = SECTION.format(url=url)
            yield

    def _busy(self) -> list[CheckedPod]:
        pods = self._checker.pods.values()
        return [pod for pod in pods if pod.service and pod.key.startswith(f"{self._namespace}/") and pod.holds]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if await query_of(request) == "vector(1)":
            return web.json_response(vector(({}, 1)))
        series: list[tuple[dict[str, str], object]] = [
            ({"namespace": self._namespace, "pod": pod.key.partition("/")[2]}, RATE)
            for pod in self._busy()
            if pod.phase == "Running"
        ]
        if not self.says:
            self.whole += bool(series)
            return web.json_response(vector(*series))
        self.left_out += 1
        return await self._partial(request, series)

    async def _partial(self, request: web.Request, series: list[tuple[dict[str, str], object]]) -> web.StreamResponse:
        match self.says:
            case "missing":
                body: dict[str, Any] = vector()
            case "some missing":
                body = vector(*series[1:])
            case "labels":
                body = vector(*(({"namespace": labels["namespace"]}, value) for labels, value in series))
            case "numbers":
                body = vector(*((labels, "NaN") for labels, _ in series))
            case "warnings":
                remarks = {"warnings": ["a store did not answer"], "infos": ["metric might not be a counter"]}
                body = {**vector(), **remarks}
            case "refused":
                body = {"status": "error", "errorType": "timeout", "error": "query timed out in expression evaluation"}
                return web.json_response(body, status=503)
            case _:
                return await self._cut(request, json.dumps(vector(*series)).encode())
        return web.json_response(body)

    async def _cut(self, request: web.Request, whole: bytes) -> web.StreamResponse:
        """Send half of an answer: as all there is, or with a connection that dies."""
        half = whole[: len(whole) // 2]
        if self.says == "half":
            return web.Response(body=half, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Length": str(len(whole))})
        await response.prepare(request)
        await response.write(half)
        if request.transport is not None:
            request.transport.abort()
        return response

    def _changed(self, plural: str, old: Any, new: Any) -> None:
        if plural != "pods" or not isinstance(new, CheckedPod) or not self.known:
            return
        if new.cls == "online" or not new.node or new.phase in ENDED or (old is not None and old.node):
            return
        if any(pod.node == new.node for pod in self._busy()):
            self.breaches.append(f"pod {new.key} came to {new.node}, whose service takes {RATE:g} requests a second")

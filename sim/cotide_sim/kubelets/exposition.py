"""What the fake nodes measure, in the Prometheus text format, and the page that serves it.

Called by `fleet`; read by the operator's usage feed, by the demo and by a Prometheus. The page is computed at most
every 250 ms of the wall, however often it is asked for.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web

from cotide_core.errors import InputError
from cotide_sim.machine import MachinePark, NodeUsage, ServiceSample

REFRESH_SECONDS: Final = 0.25
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics_text(
    usage: Iterable[NodeUsage], samples: Iterable[ServiceSample], counters: Iterable[tuple[str, str, int]]
) -> str:
    """Write usage, samples and counters as Prometheus text.

    Parameters
    ----------
    counters : (name, help, value) of each counter of the fleet itself.
    """
    nodes = [(f'{{node="{_label(one.node)}"}}', one) for one in usage]
    pods = [(_pod_labels(one), one) for one in samples]
    lines: list[str] = []
    _family(
        lines,
        "cotide_sim_node_cpu_usage_millicores",
        "CPU that the node's pods use.",
        [(labels, one.cpu_millicores) for labels, one in nodes],
    )
    _family(
        lines,
        "cotide_sim_node_memory_usage_bytes",
        "Memory that the node's pods use.",
        [(labels, one.memory_bytes) for labels, one in nodes],
    )
    _family(
        lines,
        "cotide_sim_service_requests_per_second",
        "Requests that the pod serves each simulated second.",
        [(labels, one.requests_per_second) for labels, one in pods],
    )
    _family(
        lines,
        "cotide_sim_service_latency_p95_milliseconds",
        "95th percentile of the pod's latency.",
        [(labels, one.latency_p95_milliseconds) for labels, one in pods],
    )
    for name, text, value in counters:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} counter", f"{name} {value}"]
    return "\n".join(lines) + "\n"


def _family(lines: list[str], name: str, text: str, values: Iterable[tuple[str, float]]) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    lines.extend(f"{name}{labels} {value!r}" for labels, value in values)


def _pod_labels(sample: ServiceSample) -> str:
    namespace, _, pod = sample.key.partition("/")
    return f'{{namespace="{_label(namespace)}",pod="{_label(pod)}",node="{_label(sample.node)}"}}'


def _label(value: str) -> str:
    return value.translate(_ESCAPES)


class MetricsPage:
    """The text of the page, remembered for a quarter of a second.

    Parameters
    ----------
    park : MachinePark
        What is measured.
    now : callable
        The simulated time.
    counters : callable
        The fleet's own counters.
    """

    def __init__(
        self, park: MachinePark, now: Callable[[], float], counters: Callable[[], list[tuple[str, str, int]]]
    ) -> None:
        self._park, self._now, self._counters = park, now, counters
        self._text, self._made_at = "", float("-inf")

    def text(self) -> str:
        """Return the page, at most a quarter of a second old."""
        if time.monotonic() - self._made_at >= REFRESH_SECONDS:
            now = self._now()
            self._text = metrics_text(self._park.node_usage(now), self._park.service_samples(now), self._counters())
            self._made_at = time.monotonic()
        return self._text


async def serve(page: MetricsPage, healthy: Callable[[], bool], host: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve ``/metrics`` and ``/healthz``; return what to clean up, and the port in use.

    Raises
    ------
    InputError
        When the port can't be had: as `cotide operator` says it.
    """

    async def metrics(request: web.Request) -> web.Response:
        del request
        return web.Response(body=page.text().encode(), headers={"Content-Type": _CONTENT_TYPE})

    async def health(request: web.Request) -> web.Response:
        del request
        return web.Response(text="ok\n") if healthy() else web.Response(text="not connected\n", status=503)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", health)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"can't be opened ({error.strerror})"
        raise InputError(f"port {port} on {host} {why}; choose another one", field="--metrics-port") from error
    return runner, runner.addresses[0][1]

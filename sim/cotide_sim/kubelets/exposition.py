"""The measurements of the fake nodes in the Prometheus text format, and the page that serves them.

Called by `fleet`; read by the operator's usage feed, by the demo and by a Prometheus. The page is computed at most
every 250 ms of the wall, for any number of requests, and takes at most a tenth of the time. With ten thousand pods it
takes 0.1 s, and is at most a second old.

``container_*`` are a kubelet's (cAdvisor's) names, so that a cluster's Prometheus rule works here. cAdvisor's metric is
a counter, and a Prometheus takes rates by the wall's clock. With simulated time that passes s times as fast, the
counter therefore grows by 1/s of the simulated core-seconds: ``rate(container_cpu_usage_seconds_total[1m])`` is the
number of cores in use at any speed, averaged over s simulated minutes.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web

from cotide_core.errors import InputError
from cotide_sim.cluster.machine import MachinePark, NodeUsage, PodUsage, ServiceSample

REFRESH_SECONDS: Final = 0.25
SHARE_OF_TIME: Final = 10.0
"""Pause after a computation, as a multiple of its time; chosen."""
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics_text(
    usage: Iterable[NodeUsage],
    samples: Iterable[ServiceSample],
    counters: Iterable[tuple[str, str, int]],
    pod_usage: Iterable[PodUsage] = (),
    speed: float = 1.0,
) -> str:
    """Write usage, samples and counters as Prometheus text.

    Parameters
    ----------
    counters : (name, help, value) of each counter of the fleet itself.
    pod_usage : of all running pods.
    speed : simulated seconds in a second of the wall.
    """
    nodes = [(f'{{node="{_label(node_usage.node)}"}}', node_usage) for node_usage in usage]
    pods = [(_pod_labels(sample), sample) for sample in samples]
    lines: list[str] = []
    _family(
        lines,
        "cotide_sim_node_cpu_usage_millicores",
        "CPU that the node's pods use.",
        [(labels, node_usage.cpu_millicores) for labels, node_usage in nodes],
    )
    _family(
        lines,
        "cotide_sim_node_memory_usage_bytes",
        "Memory that the node's pods use.",
        [(labels, node_usage.memory_bytes) for labels, node_usage in nodes],
    )
    _family(
        lines,
        "cotide_sim_service_requests_per_second",
        "Requests that the pod serves each simulated second.",
        [(labels, service_sample.requests_per_second) for labels, service_sample in pods],
    )
    _family(
        lines,
        "cotide_sim_service_latency_p95_milliseconds",
        "95th percentile of the pod's latency.",
        [(labels, service_sample.latency_p95_milliseconds) for labels, service_sample in pods],
    )
    _pod_families(lines, list(pod_usage), speed)
    for name, text, value in counters:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} counter", f"{name} {value}"]
    return "\n".join(lines) + "\n"


def _pod_families(lines: list[str], pods: list[PodUsage], speed: float) -> None:
    labels = []
    for pod_usage in pods:
        namespace, _, pod = pod_usage.key.partition("/")
        labels.append(f'namespace="{_label(namespace)}",pod="{_label(pod)}",node="{_label(pod_usage.node)}"}}')
    _family(
        lines,
        "cotide_sim_pod_cpu_usage_millicores",
        "CPU that the pod uses.",
        [("{" + label, pod_usage.cpu_millicores) for label, pod_usage in zip(labels, pods, strict=True)],
    )
    _family(
        lines,
        "cotide_sim_pod_memory_usage_bytes",
        "Memory that the pod uses.",
        [("{" + label, pod_usage.memory_bytes) for label, pod_usage in zip(labels, pods, strict=True)],
    )
    labels = [
        f'{{container="{_label(pod_usage.container)}",{label}' for label, pod_usage in zip(labels, pods, strict=True)
    ]
    _family(
        lines,
        "container_cpu_usage_seconds_total",
        "Core-seconds by the wall that the container used since it started.",
        [(label, pod_usage.cpu_core_seconds / speed) for label, pod_usage in zip(labels, pods, strict=True)],
        kind="counter",
    )
    _family(
        lines,
        "container_memory_working_set_bytes",
        "Memory that the container uses.",
        [(label, pod_usage.memory_bytes) for label, pod_usage in zip(labels, pods, strict=True)],
    )


def _family(
    lines: list[str], name: str, text: str, values: Iterable[tuple[str, float]], *, kind: str = "gauge"
) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines.extend(f"{name}{labels} {value!r}" for labels, value in values)


def _pod_labels(sample: ServiceSample) -> str:
    namespace, _, pod = sample.key.partition("/")
    return f'{{namespace="{_label(namespace)}",pod="{_label(pod)}",node="{_label(sample.node)}"}}'


def _label(value: str) -> str:
    # Names of the API never need it; `translate` costs ten times the look.
    return value if value.isprintable() and "\\" not in value and '"' not in value else value.translate(_ESCAPES)


class MetricsPage:
    """The text of the page, remembered for a quarter of a second or ten times as long as it took.

    Parameters
    ----------
    park : MachinePark The measured machines.
    now : callable
        The simulated time.
    counters : callable
        The fleet's own counters.
    speed : float
        Simulated seconds in a second of the wall.
    """

    def __init__(
        self,
        park: MachinePark,
        now: Callable[[], float],
        counters: Callable[[], list[tuple[str, str, int]]],
        speed: float = 1.0,
    ) -> None:
        self._park, self._now, self._counters, self._speed = park, now, counters, speed
        self._text, self._stale_at = "", float("-inf")

    def text(self) -> str:
        """Return the page, at most as old as the class docstring states."""
        began = time.monotonic()
        if began >= self._stale_at:
            now = self._now()
            park = self._park
            usage, samples, pods = park.node_usage(now), park.service_samples(now), park.pod_usage(now)
            self._text = metrics_text(usage, samples, self._counters(), pods, self._speed)
            ended = time.monotonic()
            self._stale_at = ended + max(REFRESH_SECONDS, SHARE_OF_TIME * (ended - began))
        return self._text


async def serve(page: MetricsPage, healthy: Callable[[], bool], host: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve ``/metrics`` and ``/healthz``; return the runner to clean up, and the port in use.

    Raises
    ------
    InputError
        When the port is not available: the same message as `cotide operator`.
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

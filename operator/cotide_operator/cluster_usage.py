"""Usage of cpu and memory by class, from the cluster's metrics API (``metricsSource: {kubernetes: {}}``).

Runs beside the loop when that source is configured. The metrics API knows neither request rates nor latencies, so no
service sample comes from it and the log says so once. Invariant: what can't be read leaves the gauges as they were and
is said once per change of state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cotide_core.errors import ClusterError, InputError
from cotide_core.events import Pod
from cotide_core.units import resource_amount
from cotide_kube.client import KubeClient
from cotide_operator.telemetry import Telemetry

_LOG = logging.getLogger(__name__)

PATH: Final = "/apis/metrics.k8s.io/v1beta1/pods"


class ClusterUsage:
    """Reads pod usage and sums it by class into gauges."""

    def __init__(
        self, client: KubeClient, interval_seconds: float, pod_of: Callable[[str], Pod | None], telemetry: Telemetry
    ) -> None:
        self._client = client
        self._interval_seconds = interval_seconds
        self._pod_of = pod_of
        self._telemetry = telemetry
        self._up: bool | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        _LOG.info("the Kubernetes metrics API has no request rates and no latencies: only usage is read from it")
        while True:
            await self.read_once()
            await asyncio.sleep(self._interval_seconds)

    async def read_once(self) -> None:
        """Read the usage of all pods once."""
        try:
            items = await self._client.list(PATH)
        except ClusterError as error:
            if self._up is not False:
                _LOG.warning("the metrics API does not answer: %s", error)
            self._up = False
            self._telemetry.source_up.set(0)
            return
        self._up = True
        self._telemetry.source_up.set(1)
        sums: dict[str, list[int]] = {}
        for item in items:
            metadata = item.get("metadata") or {}
            pod = self._pod_of(f"{metadata.get('namespace')}/{metadata.get('name')}")
            if pod is None:
                continue
            total = sums.setdefault(pod.workload_class.value, [0, 0])
            for container in item.get("containers") or ():
                usage = container.get("usage") or {}
                for index, resource in enumerate(("cpu", "memory")):
                    try:
                        total[index] += resource_amount(resource, usage[resource])
                    except (KeyError, InputError):  # a container that was just started has no usage yet
                        continue
        for name, (millicores, memory_bytes) in sums.items():
            self._telemetry.usage_cpu.labels(name).set(millicores)
            self._telemetry.usage_memory.labels(name).set(memory_bytes)

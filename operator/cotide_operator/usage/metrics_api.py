"""The cluster's metrics API as a source (``metricsSource: {kubernetes: {}}``): the usage of pods only.

Read by `usage_feed`. The metrics API has no request rates, latencies or history, so it gives no service readings.
Invariant: a pod with one container without a number has no number itself, since the sum of the others would look like
idleness.

Source: https://github.com/kubernetes/metrics/blob/master/pkg/apis/metrics/v1beta1/types.go
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from cotide_core.errors import ClusterError, InputError
from cotide_core.units import resource_amount
from cotide_kube.client import KubeClient
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage.measurement_faults import MeasurementFaults
from cotide_operator.usage.sources import CPU, MEMORY, Measured, SourceDown, UsageReading, usable

PATH: Final = "/apis/metrics.k8s.io/v1beta1/pods"
_RESOURCES: Final = ((CPU, "cpu"), (MEMORY, "memory"))


class MetricsApiSource:
    """Reads PodMetrics."""

    def __init__(self, client: KubeClient, metrics: Metrics) -> None:
        self._client = client
        self._faults = MeasurementFaults(metrics)
        self.settling_seconds = 0.0
        self.refused: dict[str, str] = {}

    async def read(self) -> Measured:
        """List the usage of every pod."""
        try:
            items = await self._client.list(PATH)
        except ClusterError as error:
            raise SourceDown(f"the metrics API does not answer: {error}") from error
        now = time.time()
        found: list[UsageReading] = []
        for index, item in enumerate(items):
            try:
                found += list(_readings(item, now))
            except Exception as error:  # noqa: BLE001 - one answer that trips us must not spoil those of all other pods
                self._faults.leave_out("metrics API", f"item {index}", error)
        return Measured(usage=found)


def _readings(item: dict[str, Any], now: float) -> Iterable[UsageReading]:
    metadata = item.get("metadata") or {}
    pod = f"{metadata.get('namespace')}/{metadata.get('name')}"
    wall = _moment(item.get("timestamp"), now)
    containers = item.get("containers") or ()
    for resource, name in _RESOURCES:
        amounts = [_amount(name, (container.get("usage") or {}).get(name)) for container in containers]
        known = [amount for amount in amounts if amount is not None]
        yield UsageReading(pod, resource, sum(known) if known and len(known) == len(amounts) else None, wall)


def _amount(name: str, quantity: object) -> float | None:
    try:
        return usable(resource_amount(name, quantity)) if isinstance(quantity, str) else None
    except InputError:
        return None


def _moment(text: object, now: float) -> float:
    """Return the time of measurement; an invalid time counts as now, when the value was received."""
    try:
        return parse_timestamp(str(text)) if text else now
    except InputError:
        return now

"""The section ``metricsSource`` of the configuration file: where rates, latencies and usage are read.

Part of `settings`; read by the feeds. The default queries use the names that every kubelet's cAdvisor exposes
(https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md).
"""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator, model_validator

from cotide_operator.config.section import Section

POD_CPU_QUERY: Final = (
    'sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!="",container!="POD"}[2m])) * 1000'
)
"""Millicores of each pod. Window chosen: a rate needs two samples, and at the usual scrape of 30 s it sees four."""
POD_MEMORY_QUERY: Final = 'sum by (namespace, pod) (container_memory_working_set_bytes{container!="",container!="POD"})'
"""Bytes of each pod. The working set leaves out page cache that the kernel can drop at once; usage would count it."""


class UrlSource(Section):
    """A source behind an http(s) URL."""

    url: str

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value.rstrip("/")


class PrometheusSourceSettings(UrlSource):
    """A Prometheus, and how usage is asked of it."""

    pod_cpu_query: str = POD_CPU_QUERY
    """PromQL for millicores by (namespace, pod); a recorded query's name is the cheapest."""
    pod_memory_query: str = POD_MEMORY_QUERY
    """PromQL for bytes by (namespace, pod)."""

    @field_validator("pod_cpu_query", "pod_memory_query")
    @classmethod
    def _asks_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError(
                "must be a PromQL query that keeps the labels namespace and pod; leave it out for cAdvisor's"
            )
        return value.strip()


class KubernetesSource(Section):
    """The metrics API of the cluster: usage of cpu and memory, but no request rate and no latency."""


class MetricsSourceSettings(Section):
    """Where request rates, latencies and usage come from: exactly one of the three."""

    prometheus: PrometheusSourceSettings | None = None
    """PromQL: rates and latencies with the queries that each Workload names, usage with those named here."""
    scrape: UrlSource | None = None
    """A Prometheus text endpoint with ``cotide_sim_*`` (fake nodes)."""
    kubernetes: KubernetesSource | None = None
    interval_seconds: float = Field(default=5.0, gt=0)
    """Wall seconds between two readings; chosen."""
    stale_after_seconds: float = Field(default=60.0, gt=0)
    """Wall seconds; a sample older than this is dropped, never read as zero; chosen: two scrapes of 30 s."""

    recent_peak_seconds: float = Field(default=86_400.0, gt=0)
    """Clock seconds; a service whose rate stops coming counts with its highest rate of so long. A day holds the daily
    peak."""

    @model_validator(mode="after")
    def _exactly_one(self) -> MetricsSourceSettings:
        named = [name for name in ("prometheus", "scrape", "kubernetes") if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError("name exactly one of prometheus, scrape, kubernetes")
        if self.stale_after_seconds < self.interval_seconds:
            raise ValueError("staleAfterSeconds must not be below intervalSeconds: every sample would be stale")
        return self

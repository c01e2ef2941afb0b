"""The section ``metricsSource`` of the configuration file: the sources of rates, latencies and usage.

Part of `settings`; read by the feeds. The default queries use the names that every kubelet's cAdvisor exposes
(https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md).
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from cotide_operator.config.promql import PromQuery, QueryRefused
from cotide_operator.config.section import Section

POD_CPU_QUERY: Final = (
    'sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!="",container!="POD"}[2m])) * 1000'
)
"""Millicores of each pod. Window chosen: a rate needs two samples, and at the usual scrape of 30 s it sees four."""
POD_MEMORY_QUERY: Final = 'sum by (namespace, pod) (container_memory_working_set_bytes{container!="",container!="POD"})'
"""Bytes of each pod. The working set excludes page cache that the kernel can drop at once; usage would count it."""


OWN_HEADERS: Final = frozenset(
    ("accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding")
)
"""Headers, in lower case, that define the form of a request."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
"""A token of RFC 9110, section 5.6.2; its length is chosen."""


class UrlSource(Section):
    """A source behind an http(s) URL."""

    url: str
    """Address, with http:// or https://."""

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value.rstrip("/")


EVERY_NAMESPACE: Final = "*"
"""In ``free``: namespaces that are not named."""


class WorkloadQueriesSettings(Section):
    """The queries for a Workload's request rate and latency, and their cost limits.

    The operator makes them from the two templates. A tenant's own query runs only if ``free`` allows it.
    """

    rps: str | None = None
    """PromQL for requests per second by pod; namespace and pods of the Workload are put into each selector."""
    latency: str | None = None
    """PromQL for the p95 latency in milliseconds by pod; likewise."""
    namespace_label: str = Field(default="namespace", pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")
    """Name of the label of the namespace in this Prometheus."""
    pod_label: str = Field(default="pod", pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")
    """Names of the labels in this Prometheus; in one without ``honor_labels`` they may begin with ``exported_``."""
    free: dict[str, Literal["enforced", "unrestricted"]] = Field(default_factory=dict)
    """Namespaces that permit queries of their own Workloads; ``enforced``: with the namespace in each selector."""
    concurrent_per_namespace: int = Field(default=2, ge=1, le=8)
    """Queries of one namespace in flight, of 8 in all; chosen."""
    seconds_per_namespace: float = Field(default=5.0, gt=0, le=60)
    """Wall seconds for a namespace's queries in one reading; chosen."""
    maximum_series: int = Field(default=10_000, ge=1, le=1_000_000)
    """Most series in one answer; as many as a Workload may have replicas."""
    maximum_answer_bytes: int = Field(default=4 << 20, ge=1024, le=1 << 30)
    """Most bytes of one answer; chosen: 10,000 series with the labels namespace and pod have 2 MB."""

    @field_validator("rps", "latency")
    @classmethod
    def _is_promql(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            PromQuery.parse(value).enforced(())
        except QueryRefused as error:
            raise ValueError(str(error)) from error
        return value

    @field_validator("free")
    @classmethod
    def _names_the_unrestricted(cls, value: dict[str, str]) -> dict[str, str]:
        if value.get(EVERY_NAMESPACE) == "unrestricted":
            raise ValueError(f"only a namespace that is named can be unrestricted, not {EVERY_NAMESPACE!r}")
        return value

    def freedom(self, namespace: str) -> str | None:
        """Return ``enforced``, ``unrestricted``, or None where Workloads may use no queries of their own."""
        return self.free.get(namespace, self.free.get(EVERY_NAMESPACE))


class TlsSettings(Section):
    """How the operator checks an https source and identifies itself; the files are read again when they change."""

    ca_file: Path | None = None
    """PEM of the authorities for the server's certificate; None: the system's."""
    certificate_file: Path | None = None
    """PEM of the operator's own certificate."""
    key_file: Path | None = None
    """PEM of its key, without a password."""
    server_name: str | None = Field(default=None, min_length=1)
    """Name that the server's certificate must have instead of the url's host."""

    @model_validator(mode="after")
    def _is_a_pair(self) -> TlsSettings:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificateFile and keyFile go together")
        return self


class HeaderSettings(Section):
    """The value of one header: literal, or from a file or an environment variable if it is secret."""

    value: SecretStr | None = None
    """The value itself; writing it in place of the section means the same."""
    file: Path | None = None
    """Read again when it changes."""
    env: str | None = Field(default=None, min_length=1)
    """Environment variable with the value."""

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_text(cls, given: object) -> object:
        return {"value": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _is_one_value(self) -> HeaderSettings:
        if sum(source is not None for source in (self.value, self.file, self.env)) != 1:
            raise ValueError("name exactly one of value, file, env, or write the value itself")
        if self.value is not None and not is_header_value(self.value.get_secret_value()):
            raise ValueError("must be one line of plain characters")
        return self

    @property
    def is_secret(self) -> bool:
        """Return whether the value stands outside the configuration."""
        return self.value is None


def is_header_value(text: str) -> bool:
    """Return whether a text can be sent as the value of a header."""
    return bool(text) and text.isascii() and text.isprintable()


class PrometheusSourceSettings(UrlSource):
    """A Prometheus, the connection to it, and the queries for usage."""

    pod_cpu_query: str = POD_CPU_QUERY
    """PromQL for millicores by (namespace, pod); a recorded query's name is the cheapest."""
    pod_memory_query: str = POD_MEMORY_QUERY
    """PromQL for bytes by (namespace, pod)."""
    node_waiting_query: str | None = None
    """PromQL for the share of time that a service of a node waits for a cpu, by ``node``, such as
    ``max by (node) (avg_over_time(cotide_node_agent_services_waiting_share[1m]))``; None for no such query."""
    node_throttled_query: str | None = None
    """PromQL for the number of services of a node that limits of their own throttle, by ``node``, such as ``max by
    (node) (max_over_time(cotide_node_agent_services_throttled[1m]))``: latencies of such moments are not learned."""
    bearer_token_file: Path | None = None
    """Read again once a minute, and when Prometheus refuses the token."""
    tls: TlsSettings = TlsSettings()
    headers: dict[str, HeaderSettings] = Field(default_factory=dict)
    """Sent with each request, such as ``X-Scope-OrgID`` for Mimir and Cortex."""
    workload_queries: WorkloadQueriesSettings = WorkloadQueriesSettings()

    @field_validator("headers")
    @classmethod
    def _are_free(cls, value: dict[str, HeaderSettings]) -> dict[str, HeaderSettings]:
        for name in value:
            if _HEADER_NAME.fullmatch(name) is None:
                raise ValueError(f"{name[:40]!r} is not the name of a header")
            if name.lower() in OWN_HEADERS:
                raise ValueError(f"header {name} is set by Cotide")
        if len({name.lower() for name in value}) < len(value):
            raise ValueError("names a header more than once")
        return value

    @field_validator("node_waiting_query", "node_throttled_query")
    @classmethod
    def _is_no_blank(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("must be a PromQL query that keeps the label node; omit it for none")
        return None if value is None else value.strip()

    @field_validator("pod_cpu_query", "pod_memory_query")
    @classmethod
    def _asks_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must be a PromQL query that keeps the labels namespace and pod; omit it for cAdvisor's")
        return value.strip()

    @model_validator(mode="after")
    def _keeps_secrets(self) -> PrometheusSourceSettings:
        authorizes = any(name.lower() == "authorization" for name in self.headers)
        if authorizes and self.bearer_token_file is not None:
            raise ValueError("bearerTokenFile and the header Authorization are one header: name one of them")
        if self.url.startswith("https://"):
            return self
        if self.tls != TlsSettings():
            raise ValueError("tls goes with an https:// url")
        if _is_loopback(urlsplit(self.url).hostname or ""):
            return self
        if self.bearer_token_file is not None:
            raise ValueError("bearerTokenFile goes with an https:// url: the token would be sent in the clear")
        if authorizes or any(header.is_secret for header in self.headers.values()):
            raise ValueError("secret headers go with an https:// url: they would be sent in the clear")
        return self


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class KubernetesSource(Section):
    """The metrics API of the cluster: usage of cpu and memory, but no request rate and no latency."""


class MetricsSourceSettings(Section):
    """Where request rates, latencies and usage come from: exactly one of the three."""

    prometheus: PrometheusSourceSettings | None = None
    """PromQL: rates, latencies and usage with the queries of this section, or a Workload's own if it is allowed."""
    scrape: UrlSource | None = None
    """A Prometheus text endpoint with ``cotide_sim_*`` (fake nodes)."""
    kubernetes: KubernetesSource | None = None
    """The metrics API of the cluster: usage only, no rates and no latencies."""
    interval_seconds: float = Field(default=5.0, gt=0)
    """Wall seconds between two readings; chosen."""
    stale_after_seconds: float = Field(default=60.0, gt=0)
    """Wall seconds after which a sample is dropped, never read as zero; chosen: two scrapes of 30 s."""

    recent_peak_seconds: float = Field(default=86_400.0, gt=0)
    """Clock seconds; a service without new samples counts with its highest rate in that time. A day holds the daily
    peak."""

    @model_validator(mode="after")
    def _exactly_one(self) -> MetricsSourceSettings:
        named = [name for name in ("prometheus", "scrape", "kubernetes") if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError("name exactly one of prometheus, scrape, kubernetes")
        if self.stale_after_seconds < self.interval_seconds:
            raise ValueError("staleAfterSeconds must not be below intervalSeconds: every sample would be stale")
        return self

"""What the agent measures and does, for Prometheus.

The operator reads them there like any other measurement, by the queries of its configuration (none of the default
queries reads the agent). The agent has no other connection to the operator. Written to by `service`. Invariant: no
pod's name becomes a label, the node's is the only one.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cotide_node_agent.agent import Reading

TICK_BUCKETS = tuple(0.001 * 2**exponent for exponent in range(10))
"""A millisecond to half a second; chosen."""


class AgentMetrics:
    """All metrics of the agent of one node, in a registry of their own."""

    def __init__(self, node: str) -> None:
        self._node = node
        self.registry = CollectorRegistry()
        self._services = self._gauge("services_cpu_cores", "Cpu used by services and by the node itself.")
        self._batch = self._gauge("batch_cpu_cores", "Cpu used by batch and gratis pods.")
        self._allowance = self._gauge("batch_allowance_cores", "Cpu that batch and gratis pods may use together.")
        self._factor = self._gauge("contention_factor", "Part of the allowance that contention leaves, 1 without any.")
        self._waiting = self._gauge("services_waiting_share", "Share of its time that the most delayed service "
                                    "waits for a cpu; NaN where the kernel gives no figure.")  # fmt: skip
        self._cycles = self._gauge("services_cycles_ratio", "Highest ratio of a service's cycles an instruction to "
                                   "their usual number; NaN where they are not counted.")  # fmt: skip
        self._throttled = self._gauge("services_throttled", "Services that their own limit holds back.")
        self._governed = self._gauge("governed_pods", "Batch and gratis pods on the node.")
        self._changed = self._gauge("changed_files", "Files of control groups that differ from the kubelet's values.")
        self.failures = Counter(
            "cotide_node_agent_failures_total",
            "Ticks that failed; after each the kernel's defaults hold.",
            registry=self.registry,
        )
        self.ticks = Histogram(
            "cotide_node_agent_tick_seconds", "Duration of a tick.", buckets=TICK_BUCKETS, registry=self.registry
        )

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"cotide_node_agent_{name}", text, ["node"], registry=self.registry).labels(self._node)

    def show(self, reading: Reading) -> None:
        """Show one tick."""
        self._services.set(reading.services_cpus)
        self._batch.set(reading.batch_cpus)
        self._allowance.set(reading.allowance_cpus)
        self._factor.set(reading.factor)
        waiting = reading.contention.waiting_share
        self._waiting.set(float("nan") if waiting is None else waiting)
        self._cycles.set(float("nan") if reading.cycles_ratio is None else reading.cycles_ratio)
        self._throttled.set(reading.contention.throttled_pods)
        self._governed.set(reading.governed_pods)
        self._changed.set(reading.changed_files)

    def show_nothing(self, changed_files: int) -> None:
        """Show that nothing is known of the present: a former tick's values would pass for present ones."""
        for gauge in (
            self._services, self._batch, self._allowance, self._factor, self._waiting, self._cycles, self._throttled,
            self._governed,
        ):  # fmt: skip
            gauge.set(float("nan"))
        self._changed.set(changed_files)

    def text(self) -> bytes:
        """Return them in Prometheus' text format."""
        return generate_latest(self.registry)

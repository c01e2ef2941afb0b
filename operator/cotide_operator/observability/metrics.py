"""The operator's metrics: kube-scheduler's names and buckets with the prefix ``cotide_``, and forecast quality.

Written to by the loop, the binder, the recorder, the feed and the model store; served by `http_server`. A registry of
its own, so that tests and demos can run several operators in one process. Invariant: no pod, node or job name ever
becomes a label (a service's Workload is the one exception, there are few), so that the series stay bounded.

Source of names and buckets: kubernetes/pkg/scheduler/metrics/metrics.go
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

ATTEMPT_BUCKETS: Final = tuple(0.001 * 2**exponent for exponent in range(15))
SLI_BUCKETS: Final = tuple(0.01 * 2**exponent for exponent in range(20))
ATTEMPTS_LABEL_CAP: Final = 15
EXTENDER_BUCKETS: Final = tuple(0.00025 * 2**exponent for exponent in range(12))
"""A quarter of a millisecond to half a second; chosen."""


class Metrics:
    """All metrics of one operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._add_parts()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"cotide_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"cotide_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"cotide_{name}", text, labels, buckets=buckets, registry=self.registry)

        self.attempts = counter(
            "schedule_attempts_total",
            "Attempts to place a pod: scheduled, unschedulable, or error (the API server refused the binding).",
            "result",
            "class",
            "policy",
        )
        self.attempt_duration = histogram(
            "scheduling_attempt_duration_seconds",
            "Wall seconds of an attempt: the pod's share of its decision cycle, and its binding.",
            ATTEMPT_BUCKETS,
            "result",
            "policy",
        )
        self.algorithm_duration = histogram(
            "scheduling_algorithm_duration_seconds",
            "Wall seconds of one decision cycle, per decision taken in it.",
            ATTEMPT_BUCKETS,
        )
        self.pending = gauge("pending_pods", "Pods that wait, by queue.", "queue")
        self.sli_duration = histogram(
            "pod_scheduling_sli_duration_seconds",
            "Clock seconds from a pod's creation to its binding, all attempts together.",
            SLI_BUCKETS,
            "attempts",
        )
        self.incoming = counter("queue_incoming_pods_total", "Pods added to a queue.", "queue", "event")
        self.binding_duration = histogram(
            "binding_duration_seconds", "Wall seconds of one binding request.", ATTEMPT_BUCKETS
        )
        self.bindings_refused = counter("bindings_refused_total", "Bindings that were not taken, by status.", "code")
        self.evictions = counter("evictions_total", "Evictions carried out.", "class", "reason")
        self.evictions_refused = counter(
            "evictions_refused_total", "Evictions that were not carried out, by the reason of the refusal.", "reason"
        )
        self.overload_slots = counter(
            "overload_slots_total", "Slots in which a node was measured above the overload share, of all nodes."
        )
        self.overloaded_nodes = gauge("overloaded_nodes", "Nodes above the overload share now.")
        self.cordoned_nodes = gauge("cordoned_nodes", "Nodes kept free of batch and gratis pods after overloads.")
        self.events_dropped = counter("events_dropped_total", "Events not written: too many at once.")
        self.notes_failed = counter("notes_failed_total", "Labels, notes and conditions that were refused.")
        self.forecast_error = histogram(
            "forecast_absolute_error",
            "Absolute error of a forecast when the truth was known (completion: seconds; loads: shares of the node).",
            (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
            "forecaster",
        )
        self.forecast_coverage = gauge(
            "forecast_coverage_ratio", "Share of truths at or below the forecast quantile.", "forecaster", "quantile"
        )
        self.forecast_underestimates = counter(
            "forecast_underestimates_total", "Truths above the forecast (completion: its median).", "forecaster"
        )
        self.forecast_bias = gauge(
            "forecast_bias_share", "Mean of forecast - load over the recent slots, shares of the node.", "forecaster"
        )
        self.qos_violations = counter("qos_violations_total", "Service slots over the limit.", "workload")
        self.qos_predictions = counter(
            "qos_predictions_total",
            "Placements beside a service that were predicted to hold its limit: held, or broken after all.",
            "outcome",
        )
        self.model_info = gauge("model_info", "The models in use (value 1).", "kind", "model_id", "schema_version")
        self.model_reloads = counter("model_reload_total", "Model files taken up or refused.", "result")
        self.trainings = counter("model_trainings_total", "Trainings from the cluster's own samples.", "kind", "result")
        self.source_up = gauge(
            "metrics_source_up",
            "1 while the source of rates and latencies answers, 0 while it does not, NaN where none is read.",
        )
        self.source_up.set(math.nan)  # zero would call a source down that nobody configured, and each standby's
        self.samples = counter(
            "service_samples_total", "Service samples: taken, stale, invalid, or assumed.", "outcome"
        )
        self.usage_cpu = gauge("usage_cpu_millicores", "Measured cpu in use.", "class")
        self.usage_memory = gauge("usage_memory_bytes", "Measured memory in use.", "class")
        self.usage_readings = counter(
            "usage_readings_total",
            "Readings of pods: taken; or dropped: invalid, implausible, settling, stale, late, future or duplicate.",
            "outcome",
        )
        self.node_samples = counter(
            "node_samples_total",
            "Sums over a node's online pods: taken; or incomplete (most pods unknown) or implausible, and dropped.",
            "outcome",
        )
        self.online_cpu = gauge(
            "online_cpu_millicores",
            "Cpu of online pods on all nodes: peak of the last slot (measured), its forecast, requested, allocatable.",
            "view",
        )
        self.online_memory = gauge("online_memory_bytes", "The same of memory.", "view")
        self.reclaimable_cpu = gauge(
            "node_reclaimable_cpu_millicores", "Cpu that batch and gratis pods may use by the forecasts, on all nodes."
        )
        self.reclaimable_memory = gauge("node_reclaimable_memory_bytes", "The same of memory.")
        self.node_outlooks = gauge(
            "node_outlooks", "Nodes by how their forecasts stand; all but two reasons mean fallen back.", "reason"
        )
        self.reclaimed_patches = counter(
            "reclaimed_patches_total",
            "Patches of nodes with reclaimed capacity: published, withdrawn, gone (another node by then), refused.",
            "result",
        )
        self.published_cpu = gauge(
            "reclaimed_published_cpu_millicores", "cotide.dev/reclaimed-cpu that the nodes show, all together."
        )
        self.published_memory = gauge(
            "reclaimed_published_memory_bytes", "cotide.dev/reclaimed-memory that the nodes show, all together."
        )
        self.admission_reviews = counter(
            "admission_reviews_total",
            "Pods shown to the admission webhook: reclaimed, untouched, or malformed (the review could not be read).",
            "outcome",
        )
        self.admission_certificate_expiry = gauge(
            "admission_certificate_expiry_timestamp_seconds",
            "When the webhook's certificate ends; NaN where none is served.",
        )
        self.admission_certificate_expiry.set(math.nan)
        self.leader = gauge("leader", "1 while this replica decides.")
        self._count_faults(counter, gauge)
        self.mirror_objects = gauge("mirror_objects", "Objects held, by kind.", "kind")

    def _count_faults(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        """Make what tells of objects that are left out, and of work that took too long."""
        self.objects_set_aside = counter(
            "objects_set_aside_total",
            "Objects that made a part of the operator fail, and are left out, by kind.",
            "kind",
        )
        self.quarantined = gauge("quarantined_objects", "Objects that are left out now, by kind.", "kind")
        self.longest_block = gauge(
            "loop_longest_block_seconds",
            "Longest time in the last minutes for which one piece of work held the operator's event loop.",
        )
        self.kopf_restarts = counter("kopf_restarts_total", "How often kopf ended and was started again.")

    def _add_parts(self) -> None:
        self._add_ledger()
        self._add_answers()
        self._add_extender()

    def _add_ledger(self) -> None:
        self.ledger_stopped = Gauge(
            "cotide_ledger_stopped",
            "1 while the ledger's disk takes nothing: lines wait in memory, or the ledger has ended.",
            registry=self.registry,
        )
        self.ledger_lost = Counter(
            "cotide_ledger_lines_lost_total", "Decision cycles that are missing in the ledger.", registry=self.registry
        )

    def _add_answers(self) -> None:
        self.qos_answers = Counter(
            "cotide_qos_answers_total",
            "Decisions beside a service by what they rest on: Inside what the QoS model learned, OutsideTraining or"
            " RateUnknown (the larger of model and heuristic counts), Heuristic (there is no model).",
            ["basis"],
            registry=self.registry,
        )

    def _add_extender(self) -> None:
        self.extender_requests = Counter(
            "cotide_extender_requests_total",
            "Questions of kube-scheduler by verb and answer: chosen (one node), passed, refused (no node), scored, left"
            " alone (not a scheduler that is looked after), unseen (the watch lags: answered, not assumed), bound,"
            " failed (a binding), malformed.",
            ["verb", "outcome"],
            registry=self.registry,
        )
        self.extender_duration = Histogram(
            "cotide_extender_request_duration_seconds",
            "Wall seconds of one answer, reading the request included.",
            ["verb"],
            buckets=EXTENDER_BUCKETS,
            registry=self.registry,
        )
        self.extender_assumed = Gauge(
            "cotide_extender_assumed_pods",
            "Pods that count on the node that kube-scheduler was answered, before the watch tells.",
            registry=self.registry,
        )
        self.extender_certificate_expiry = Gauge(
            "cotide_extender_certificate_expiry_timestamp_seconds",
            "When the extender's certificate ends; NaN where none is served.",
            registry=self.registry,
        )
        self.extender_certificate_expiry.set(math.nan)

    def text(self) -> bytes:
        """Return the exposition in the Prometheus text format."""
        return generate_latest(self.registry)


def attempts_label(attempts: int) -> str:
    """Return the attempts as a label, capped as kube-scheduler caps it."""
    return str(attempts) if attempts < ATTEMPTS_LABEL_CAP else f"{ATTEMPTS_LABEL_CAP}+"

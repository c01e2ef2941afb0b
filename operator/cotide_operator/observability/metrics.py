"""The operator's metrics: kube-scheduler's names and buckets with the prefix ``cotide_``, and forecast quality.

The loop, the binder, the recorder, the feed and the model store write to it; `http_server` serves it. Each operator has
a registry of its own, so that tests and demos can run several in one process. Invariant: no pod, node or job name ever
becomes a label, so that the number of series stays bounded. The one exception is a service's Workload: there are few.

Source of names and buckets: kubernetes/pkg/scheduler/metrics/metrics.go
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from cotide_operator.observability.histograms import BisectingHistogram

ATTEMPT_BUCKETS: Final = tuple(0.001 * 2**exponent for exponent in range(15))
SLI_BUCKETS: Final = tuple(0.01 * 2**exponent for exponent in range(20))
ATTEMPTS_LABEL_CAP: Final = 15
EXTENDER_BUCKETS: Final = tuple(0.00025 * 2**exponent for exponent in range(12))
"""A quarter of a millisecond to half a second; chosen."""
PLAN_BUCKETS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Of a plan of consolidation; chosen."""
RATIO_BUCKETS: Final = (0.25, 0.5, 0.8, 0.9, 1.1, 1.25, 2.0, 4.0)
"""Actual over expected value; chosen."""
BOOT_BUCKETS: Final = (10.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0)
"""Of a machine's boot; chosen."""
QOS_TRUST: Final = ("Learning", "Trusted", "FallenBack")
"""States of a service's latency forecasts; the words of its Workload's conditions."""


class Metrics:
    """All metrics of one operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._add_ledger()
        self._add_answers()
        self._add_learning()
        self._count_attempts()
        self._count_evictions()
        self._show_gangs()
        self._show_starts()
        self._count_writes()
        self._score_forecasts()
        self._show_models()
        self._show_usage()
        self._show_admission()
        self._show_extender()
        self._show_consolidation()
        self._show_phases()
        self._show_provisioning()
        self._count_provisioning()
        self._show_replica()
        self._count_faults()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"cotide_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"cotide_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> BisectingHistogram:
        return BisectingHistogram(f"cotide_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _count_attempts(self) -> None:
        """Create the metrics of attempts, queues and bindings."""
        self.attempts = self._counter(
            "schedule_attempts_total",
            "Attempts to place a pod: scheduled, unschedulable, or error (the API server refused the binding).",
            "result",
            "class",
            "policy",
        )
        self.attempts_by_profile = self._counter(
            "schedule_attempts_by_profile_total",
            "The same attempts by the scheduler's name in the pod's spec: one of schedulerNames.",
            "result",
            "profile",
        )
        self.attempt_duration = self._histogram(
            "scheduling_attempt_duration_seconds",
            "Wall seconds of an attempt: the pod's share of its decision cycle, and its binding.",
            ATTEMPT_BUCKETS,
            "result",
            "policy",
        )
        self.algorithm_duration = self._histogram(
            "scheduling_algorithm_duration_seconds",
            "Wall seconds of one decision cycle, per decision taken in it.",
            ATTEMPT_BUCKETS,
        )
        self.pending = self._gauge("pending_pods", "Pods that wait, by queue.", "queue")
        self.sli_duration = self._histogram(
            "pod_scheduling_sli_duration_seconds",
            "Clock seconds from a pod's creation to its binding, all attempts together.",
            SLI_BUCKETS,
            "attempts",
        )
        self.incoming = self._counter("queue_incoming_pods_total", "Pods added to a queue.", "queue", "event")
        self.binding_duration = self._histogram(
            "binding_duration_seconds", "Wall seconds of one binding request.", ATTEMPT_BUCKETS
        )
        self.bindings_refused = self._counter(
            "bindings_refused_total", "Bindings that were refused, by status.", "code"
        )

    def _count_evictions(self) -> None:
        """Create the metrics of evictions and of overloaded nodes."""
        self.evictions = self._counter("evictions_total", "Evictions carried out.", "class", "reason")
        self.evictions_refused = self._counter(
            "evictions_refused_total", "Evictions that were not carried out, by the reason of the refusal.", "reason"
        )
        self.overload_slots = self._counter(
            "overload_slots_total", "Slots in which a node was measured above the overload share, of all nodes."
        )
        self.overloaded_nodes = self._gauge("overloaded_nodes", "Nodes above the overload share now.")
        self.cordoned_nodes = self._gauge("cordoned_nodes", "Nodes kept free of batch and gratis pods after overloads.")

    def _show_starts(self) -> None:
        """Create the metrics of pods that hold a node and do not start."""
        self.pods_not_starting = self._gauge(
            "pods_not_starting",
            "Pods that hold a node and that their kubelet can't start, by its reason; Creating: for more than a minute"
            " their containers are being created, without a reason from the kubelet.",
            "class",
            "reason",
        )
        self.starts_given_up = self._counter(
            "pod_starts_given_up_total",
            "Pods of Jobs that were deleted because they were not started in time, by the kubelet's reason.",
            "class",
            "reason",
        )

    def _show_gangs(self) -> None:
        """Create the metrics of gangs."""
        self.gangs_waiting = self._gauge(
            "gangs_waiting",
            "Gangs that wait, by their need: members (fewer may start than are missing), room, bindings.",
            "need",
        )
        self.gang_oldest_wait = self._gauge(
            "gangs_oldest_wait_seconds",
            "Clock seconds that the oldest of them has waited for that; at most since the start of this replica.",
            "need",
        )
        self.gangs_partial = self._gauge(
            "gangs_partial", "Gangs that hold fewer nodes than their minimum while other members wait."
        )
        self.gang_timeouts = self._counter(
            "gang_timeouts_total", "Gangs that lost their pods by their time-out, by what was missing.", "need"
        )

    def _count_writes(self) -> None:
        """Create the metrics of lost writes that explain decisions."""
        self.events_dropped = self._counter("events_dropped_total", "Events not written: too many at once.")
        self.notes_failed = self._counter("notes_failed_total", "Labels, notes and conditions that were refused.")

    def _score_forecasts(self) -> None:
        """Create the metrics of forecast quality."""
        self.forecast_error = self._histogram(
            "forecast_absolute_error",
            "Absolute error of a forecast when the truth was known (completion: seconds; loads: shares of the node).",
            (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
            "forecaster",
        )
        self.forecast_coverage = self._gauge(
            "forecast_coverage_ratio", "Share of truths at or below the forecast quantile.", "forecaster", "quantile"
        )
        self.forecast_underestimates = self._counter(
            "forecast_underestimates_total", "Truths above the forecast (completion: its median).", "forecaster"
        )
        self.forecast_bias = self._gauge(
            "forecast_bias_share", "Mean of forecast - load over the recent slots, shares of the node.", "forecaster"
        )
        self.peak_predictors = self._gauge(
            "host_load_predictor_info", "1 for each predictor of the usage of online pods, active or in shadow.",
            "predictor", "role",
        )  # fmt: skip
        self.peak_loss = self._gauge(
            "host_load_predictor_loss",
            "Mean pinball loss at hostLoad.quantile in the challenge under way, shares of the node.",
            "predictor", "resource",
        )  # fmt: skip
        self.rate_loss = self._gauge(
            "request_rate_loss",
            "Mean pinball loss of the highest request rate over a horizon, in logarithms: forecast, last-value.",
            "forecaster", "horizon",
        )  # fmt: skip
        self.rate_trusted = self._gauge(
            "request_rate_trusted_share",
            "Share of services and horizons with a forecast that scores better than the last rate.",
        )
        self.peak_challenges = self._counter(
            "host_load_challenges_total", "Days of slots of each trial of a challenger: promoted, kept.", "outcome"
        )
        self.run_time_predictors = self._gauge(
            "run_time_predictor_info", "1 for each predictor of run times from past runs, active or in shadow.",
            "predictor", "role",
        )  # fmt: skip
        self.run_time_loss = self._gauge(
            "run_time_predictor_loss",
            "Mean loss (1 - accuracy) over the hours of the challenge under way, equal weight for each namespace.",
            "predictor",
        )
        self.run_time_challenges = self._counter(
            "run_time_challenges_total", "Periods of 48 hours of each trial of a challenger: promoted, kept.", "outcome"
        )
        self.qos_violations = self._counter("qos_violations_total", "Service slots over the limit.", "workload")
        self.qos_predictions = self._counter(
            "qos_predictions_total",
            "Placements next to a service that were predicted to hold its limit: held, or broken after all.",
            "outcome",
        )

    def _show_models(self) -> None:
        """Create the metrics of the models in use and of their samples."""
        self.model_info = self._gauge(
            "model_info", "The models in use (value 1).", "kind", "model_id", "schema_version"
        )
        self.model_reloads = self._counter("model_reload_total", "Model files loaded or refused.", "result")
        self.trainings = self._counter(
            "model_trainings_total", "Trainings from the cluster's own samples.", "kind", "result"
        )
        self.source_up = self._gauge(
            "metrics_source_up",
            "1 while the source of rates and latencies answers, 0 while it does not, NaN without a source.",
        )
        self.source_up.set(math.nan)  # zero would report an unconfigured source, and every standby's, as down
        self.measurement_faults = self._counter(
            "measurement_faults_total",
            "Measurements that made a part of the operator fail, and were left out, by place.",
            "place",
        )
        self.samples = self._counter(
            "service_samples_total", "Service samples: taken, stale, invalid, or assumed.", "outcome"
        )

    def _show_usage(self) -> None:
        """Create the metrics of measured usage, and of reclaimed capacity."""
        self.usage_cpu = self._gauge("usage_cpu_millicores", "Measured cpu in use.", "class")
        self.usage_memory = self._gauge("usage_memory_bytes", "Measured memory in use.", "class")
        self.usage_readings = self._counter(
            "usage_readings_total",
            "Readings of pods: taken; or dropped: invalid, implausible, settling, stale, late, future or duplicate.",
            "outcome",
        )
        self.node_samples = self._counter(
            "node_samples_total",
            "Sums over a node's online pods: taken; or incomplete (most pods unknown) or implausible, and dropped.",
            "outcome",
        )
        self.online_cpu = self._gauge(
            "online_cpu_millicores",
            "Cpu of online pods on all nodes: peak of the last slot (measured), its forecast, requested, allocatable.",
            "view",
        )
        self.online_memory = self._gauge("online_memory_bytes", "The same for memory.", "view")
        self.reclaimable_cpu = self._gauge(
            "node_reclaimable_cpu_millicores", "Cpu that batch and gratis pods may use by the forecasts, on all nodes."
        )
        self.reclaimable_memory = self._gauge("node_reclaimable_memory_bytes", "The same for memory.")
        self.node_outlooks = self._gauge(
            "node_outlooks", "Nodes by the state of their forecasts; all but two reasons mean fallen back.", "reason"
        )
        self.reclaimed_patches = self._counter(
            "reclaimed_patches_total",
            "Patches of nodes with reclaimed capacity: published, withdrawn, gone (another node by then), refused.",
            "result",
        )
        self.published_cpu = self._gauge(
            "reclaimed_published_cpu_millicores", "cotide.dev/reclaimed-cpu that the nodes show, all together."
        )
        self.published_memory = self._gauge(
            "reclaimed_published_memory_bytes", "cotide.dev/reclaimed-memory that the nodes show, all together."
        )

    def _show_admission(self) -> None:
        """Create the metrics of the admission webhook."""
        self.admission_reviews = self._counter(
            "admission_reviews_total",
            "Pods shown to the webhook: reclaimed, untouched, failed (an internal error), or malformed (not read).",
            "outcome",
        )
        self.admission_certificate_expiry = self._gauge(
            "admission_certificate_expiry_timestamp_seconds",
            "When the webhook's certificate ends; NaN without one.",
        )
        self.admission_certificate_expiry.set(math.nan)

    def _show_phases(self) -> None:
        """Create the metrics of pods that are resized to the needs of their phase."""
        self.phase_resizes = self._counter(
            "phase_resizes_total",
            "Sizes of phases: asked for; infeasible by their kubelet and taken back; refused permanently; unanswered.",
            "outcome",
        )
        self.phase_length_ratio = self._histogram(
            "phase_length_ratio", "Length of a phase that ended, over its expected length.", RATIO_BUCKETS
        )
        self.phase_runs = self._counter(
            "phase_runs_total",
            "Pods that ended: taught the phases of their type, or had too few measurements.",
            "outcome",
        )
        self.phase_types = self._gauge(
            "phase_types",
            "Types of Jobs by the state of their learned phases: learning, trusted, fallen back.",
            "state",
        )
        self.phase_forecast = self._gauge(
            "phase_forecast_share",
            "Over the last runs: share of time in which a rule reserved less than was used (under), share of the "
            "maximum that it reserved (held); for learned phases, one mean level and the maximum.",
            "rule",
            "what",
        )

    def _show_consolidation(self) -> None:
        """Create the metrics of freed nodes, and of the predictions about them."""
        self.consolidation_nodes = self._gauge(
            "consolidation_nodes", "Nodes that consolidation holds cordoned: draining, emptying, freed.", "mark"
        )
        self.consolidation_plan_nodes = self._gauge(
            "consolidation_plan_nodes",
            "Nodes in use, nodes in use after the last plan, and the lower bound of any plan by volume.",
            "view",
        )
        self.consolidation_moves = self._counter(
            "consolidation_moves_total", "Pods moved, and drains that a surprise ended.", "outcome"
        )
        self.consolidation_moves_left = self._gauge(
            "consolidation_moves_left", "Pods that may still be moved within the hour up to now."
        )
        self.consolidation_freed = self._counter("consolidation_freed_total", "Nodes that were freed.")
        self.consolidation_given_back = self._counter(
            "consolidation_given_back_total",
            "Nodes uncordoned again: on demand (pods waited), or for another reason, which their events give.",
            "reason",
        )
        self.consolidation_predictions = self._counter(
            "consolidation_predictions_total",
            "Predictions by outcome: that a node empties or a pod ends in time, that a node would be overloaded.",
            "prediction",
            "outcome",
        )
        self.consolidation_plan_seconds = self._histogram(
            "consolidation_plan_seconds", "Wall seconds of one plan, in its thread.", PLAN_BUCKETS
        )

    def _show_provisioning(self) -> None:
        """Create the metrics of wanted and existing machines, and of forecast demand."""
        self.provisioning_nodes = self._gauge(
            "provisioning_nodes",
            "Nodes by type: open, freeing, freed, stopping, coming (ordered), away (lost or foreign), and off.",
            "type",
            "state",
        )
        self.provisioning_wanted = self._gauge(
            "provisioning_wanted_nodes",
            "Nodes wanted: for existing pods, for forecast pods, kept on for now; resting: after failed boots.",
            "type",
            "why",
        )
        self.provisioning_pods = self._gauge(
            "provisioning_pods", "Pods that need room: existing ones, and the forecast for one boot ahead.", "what"
        )
        self.provisioning_hopeless = self._gauge(
            "provisioning_hopeless_pods", "Pods that wait and fit on no machine type."
        )
        self.provisioning_factor = self._gauge(
            "provisioning_overprovisioning_ratio", "Capacity kept on over capacity requested, learned from packing."
        )
        self.provisioning_plan_cost = self._gauge(
            "provisioning_plan_cost", "Energy, rent and switching over the last plan's horizon, in money."
        )
        self.provisioning_energy_price = self._gauge(
            "provisioning_energy_price", "Present price of a kilowatt-hour, without the price of carbon."
        )
        self.provisioning_carbon_intensity = self._gauge(
            "provisioning_carbon_grams_per_kilowatt_hour", "Present carbon dioxide of a kilowatt-hour."
        )
        self.provisioning_prices_stale = self._gauge(
            "provisioning_energy_prices_stale", "1 while price and carbon of energy are older than the limit."
        )
        self.provisioning_plan_time = self._gauge(
            "provisioning_plan_timestamp_seconds", "When the present plan was made."
        )
        self.provisioning_plan_seconds = self._histogram(
            "provisioning_plan_seconds", "Wall seconds of one plan of capacity, in its thread.", PLAN_BUCKETS
        )
        self.provisioning_boot_seconds = self._histogram(
            "provisioning_boot_seconds", "From the order of a machine until its node was seen.", BOOT_BUCKETS
        )

    def _count_provisioning(self) -> None:
        """Create the counters of plans, orders and machine usage."""
        self.provisioning_plans = self._counter(
            "provisioning_plans_total", "Plans of capacity: planned, refused (the last one stays), failed.", "result"
        )
        self.provisioning_orders = self._counter(
            "provisioning_orders_total", "Orders of machines by outcome, in the words of their events.", "type",
            "outcome",
        )  # fmt: skip
        self.provisioning_stopped = self._counter(
            "provisioning_stopped_total", "Nodes that were handed over to be switched off.", "type"
        )
        self.provisioning_forecasts = self._counter(
            "provisioning_forecasts_total",
            "Forecasts of the pods that need room by outcome: below_p50, below_p95, above_p95.",
            "outcome",
        )
        self.provisioning_energy = self._counter(
            "provisioning_energy_joules_total", "Energy of the machines that are on, by their types' watts.", "type"
        )
        self.provisioning_cost = self._counter(
            "provisioning_cost_total", "Money for energy, rent and switching.", "type"
        )
        self.provisioning_carbon = self._counter(
            "provisioning_carbon_grams_total", "Carbon dioxide of that energy.", "type"
        )

    def _show_replica(self) -> None:
        """Create the metrics of this replica."""
        self.leader = self._gauge("leader", "1 while this replica decides.")
        self.mirror_objects = self._gauge("mirror_objects", "Objects held, by kind.", "kind")

    def _count_faults(self) -> None:
        """Create the metrics of quarantined objects, and of slow work."""
        self.objects_set_aside = self._counter(
            "objects_set_aside_total",
            "Objects that made a part of the operator fail, and are left out, by kind.",
            "kind",
        )
        self.quarantined = self._gauge("quarantined_objects", "Objects that are left out now, by kind.", "kind")
        self.longest_block = self._gauge(
            "loop_longest_block_seconds",
            "Longest time in the last minutes that one piece of work held the operator's event loop.",
        )
        self.kopf_restarts = self._counter("kopf_restarts_total", "Number of restarts of kopf.")

    def _add_ledger(self) -> None:
        self.ledger_stopped = self._gauge(
            "ledger_stopped",
            "1 while the ledger's disk accepts no writes: lines wait in memory, or the ledger has ended.",
        )
        self.ledger_lost = self._counter("ledger_lines_lost_total", "Decision cycles that are missing in the ledger.")

    def _add_answers(self) -> None:
        self.qos_answers = self._counter(
            "qos_answers_total",
            "Decisions next to a service by basis: Inside the range that the QoS model learned, OutsideTraining or"
            " RateUnknown (the larger of model and heuristic counts), Heuristic (without a model).",
            "basis",
        )

    def _show_extender(self) -> None:
        """Create the metrics of kube-scheduler's requests."""
        self.extender_requests = self._counter(
            "extender_requests_total",
            "Requests of kube-scheduler by verb and answer: chosen (one node), passed, refused (no node), scored, left"
            " alone (another scheduler), unseen (the watch lags: answered, not assumed), bound,"
            " failed (a binding), malformed.",
            "verb",
            "outcome",
        )
        self.extender_duration = self._histogram(
            "extender_request_duration_seconds",
            "Wall seconds of one answer, reading the request included.",
            EXTENDER_BUCKETS,
            "verb",
        )
        self.extender_assumed = self._gauge(
            "extender_assumed_pods",
            "Pods assumed on the node that kube-scheduler received, before the watch shows them.",
        )
        self.extender_certificate_expiry = self._gauge(
            "extender_certificate_expiry_timestamp_seconds",
            "When the extender's certificate ends; NaN without one.",
        )
        self.extender_certificate_expiry.set(math.nan)

    def _add_learning(self) -> None:
        """Create the metrics of latency forecasts by service, and of stored samples."""
        gauge = self._gauge
        self.qos_precision = gauge(
            "qos_precision_ratio", "Of the samples that the model would have refused, those that broke.", "workload"
        )
        self.qos_recall = gauge(
            "qos_recall_ratio", "Of the samples that broke, those that the model would have refused.", "workload"
        )
        self.qos_brier = gauge(
            "qos_brier_score",
            "Mean squared error of the probability, of model and heuristic.",
            "workload",
            "forecaster",
        )
        self.qos_trust = gauge(
            "qos_trust",
            "1 for the state of a service's forecasts: Learning, Trusted or FallenBack.",
            "workload",
            "state",
        )
        self.qos_lead = self._histogram(
            "qos_lead_time_seconds",
            "Clock seconds to the measured break from the first warning of the model, or refusal; 0 without one.",
            (0, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400),
            "workload",
            "since",
        )
        self.model_rollbacks = self._counter("model_rollbacks_total", "Models taken back after promotion.", "kind")
        self.learned_store = self._counter(
            "learned_store_total",
            "Stored samples by outcome: kept, failed, restored, refused, or contradicted by measurements.",
            "outcome",
        )

    def show_service(
        self, workload: str, state: str, precision: float, recall: float, brier: float, heuristic_brier: float
    ) -> None:
        """Set the metrics of one service's forecasts."""
        self.qos_precision.labels(workload).set(precision)
        self.qos_recall.labels(workload).set(recall)
        self.qos_brier.labels(workload, "model").set(brier)
        self.qos_brier.labels(workload, "heuristic").set(heuristic_brier)
        for name in QOS_TRUST:
            self.qos_trust.labels(workload, name).set(name == state)

    def forget_service(self, workload: str) -> None:
        """Remove the series of a Workload that was deleted."""
        for gauge in (self.qos_precision, self.qos_recall):
            with suppress(KeyError):
                gauge.remove(workload)
        for since in ("warning", "refusal"):
            with suppress(KeyError):
                self.qos_lead.remove(workload, since)
        for name in ("model", "heuristic"):
            with suppress(KeyError):
                self.qos_brier.remove(workload, name)
        for name in QOS_TRUST:
            with suppress(KeyError):
                self.qos_trust.remove(workload, name)

    def text(self, names: Sequence[str] = ()) -> bytes:
        """Return the exposition in the Prometheus text format, of all series or of the named ones.

        Names are those of samples (``..._total``, ``..._bucket``); an unknown name adds nothing.
        """
        return generate_latest(self.registry.restricted_registry(names) if names else self.registry)


def attempts_label(attempts: int) -> str:
    """Return the attempts as a label, with the same cap as kube-scheduler."""
    return str(attempts) if attempts < ATTEMPTS_LABEL_CAP else f"{ATTEMPTS_LABEL_CAP}+"

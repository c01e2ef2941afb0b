"""The names of metrics are a contract with dashboards."""

from __future__ import annotations

import pytest

from cotide_operator.observability.metrics import Metrics

PROMISED = {
    "schedule_attempts_total": {"result", "class", "policy"},
    "scheduling_attempt_duration_seconds": {"result", "policy"},
    "scheduling_algorithm_duration_seconds": set(),
    "pending_pods": {"queue"},
    "pod_scheduling_sli_duration_seconds": {"attempts"},
    "queue_incoming_pods_total": {"queue", "event"},
    "binding_duration_seconds": set(),
    "forecast_absolute_error": {"forecaster"},
    "forecast_coverage_ratio": {"forecaster", "quantile"},
    "forecast_underestimates_total": {"forecaster"},
    "qos_violations_total": {"workload"},
    "qos_predictions_total": {"outcome"},
    "qos_answers_total": {"basis"},
    "evictions_total": {"class", "reason"},
    "model_info": {"kind", "model_id", "schema_version"},
    "model_reload_total": {"result"},
}


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_a_promised_metric_is_there_with_its_labels(name: str) -> None:
    collectors = Metrics().registry._names_to_collectors
    metric = collectors[f"cotide_{name}"]
    assert set(metric._labelnames) == PROMISED[name]


def test_no_metric_is_labelled_by_pod_or_node() -> None:
    metrics = Metrics()
    for metric in set(metrics.registry._names_to_collectors.values()):
        assert not {"pod", "node", "job", "namespace"} & set(metric._labelnames)


def test_two_operators_in_one_process_do_not_share_their_numbers() -> None:
    first, second = Metrics(), Metrics()
    first.events_dropped.inc()
    assert second.registry.get_sample_value("cotide_events_dropped_total") == 0.0

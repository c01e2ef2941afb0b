"""Forecasts are scored once, against the truth and nothing else."""

from __future__ import annotations

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod, PodPhase
from cotide_core.instructions import Bind, Forecast
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics, attempts_label


class Scene:
    def __init__(self) -> None:
        self.metrics = Metrics()
        self.forecast_scores = ForecastScores(self.metrics, lambda key: 10.0, 300.0)

    def bind(self, name: str, p50: float | None, p90: float | None, risk: float | None = None, node: str = "n") -> None:
        forecast = Forecast(qos_violation_probability=risk, seconds_p50=p50, seconds_p90=p90)
        self.forecast_scores.bound(Bind(f"ns/{name}", name, node, "because", forecast))

    def finish(self, name: str, seconds: float, phase: PodPhase = PodPhase.SUCCEEDED) -> None:
        pod = job_pod(name)
        self.forecast_scores.pod_changed(pod._replace(phase=PodPhase.RUNNING, started_seconds=100.0))
        self.forecast_scores.pod_changed(
            pod._replace(phase=phase, started_seconds=100.0, finished_seconds=100.0 + seconds)
        )

    def start(self, name: str) -> None:
        self.forecast_scores.pod_changed(job_pod(name)._replace(phase=PodPhase.RUNNING, started_seconds=100.0))

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"cotide_{name}", labels)


def job_pod(name: str) -> Pod:
    return Pod(f"ns/{name}", name, WorkloadClass.BATCH, (), 0.0, node="n")


SERVICE = Pod("ns/web-1", "w", WorkloadClass.ONLINE, (), 0.0, node="n", workload="ns/web")


def test_run_times_are_scored_by_error_coverage_and_underestimates() -> None:
    scene = Scene()
    for name, seconds in (("a", 8.0), ("b", 15.0), ("c", 30.0), ("d", 10.0)):
        scene.bind(name, p50=10.0, p90=20.0)
        scene.finish(name, seconds)
    # errors 2 + 5 + 20 + 0; at or below the median: a and d; at or below p90: a, b and d
    assert scene.value("forecast_absolute_error_sum", forecaster="completion") == 27.0
    assert scene.value("forecast_coverage_ratio", forecaster="completion", quantile="0.5") == 0.5
    assert scene.value("forecast_coverage_ratio", forecaster="completion", quantile="0.9") == 0.75
    assert scene.value("forecast_underestimates_total", forecaster="completion") == 2.0


def test_a_failed_evicted_or_unforecast_run_is_the_truth_about_nothing() -> None:
    scene = Scene()
    scene.bind("failed", 10.0, 20.0)
    scene.finish("failed", 1.0, PodPhase.FAILED)
    scene.bind("gone", 10.0, 20.0)
    scene.forecast_scores.pod_gone("ns/gone")
    scene.finish("gone", 1.0)
    scene.bind("unknown", None, None)
    scene.finish("unknown", 1.0)
    assert scene.value("forecast_absolute_error_count", forecaster="completion") is None


def test_a_placement_beside_a_service_is_scored_by_the_first_latency_after_it_started() -> None:
    scene = Scene()
    scene.bind("a", 10.0, 20.0, risk=0.1)
    scene.forecast_scores.sampled(SERVICE, 50.0, now=1.0)  # before it started: says nothing about it
    assert scene.value("qos_predictions_total", outcome="broken") is None
    scene.start("a")
    scene.forecast_scores.sampled(SERVICE, 5.0, now=2.0)
    scene.forecast_scores.sampled(SERVICE, 50.0, now=3.0)  # scored already
    assert scene.value("qos_predictions_total", outcome="held") == 1.0
    scene.bind("b", 10.0, 20.0, risk=0.1)
    scene.start("b")
    scene.forecast_scores.sampled(SERVICE, 50.0, now=4.0)
    assert scene.value("qos_predictions_total", outcome="broken") == 1.0


def test_a_placement_that_is_made_again_elsewhere_leaves_nothing_beside_services_of_the_first_node() -> None:
    scene = Scene()
    scene.bind("a", 10.0, 20.0, risk=0.1)
    scene.bind("a", 10.0, 20.0, risk=0.1, node="other")
    scene.forecast_scores.pod_gone("ns/a")
    scene.forecast_scores.sampled(SERVICE, 5.0, now=1.0)
    assert scene.forecast_scores._at_stake == {}


def test_a_new_slot_counts_anew() -> None:
    scene = Scene()
    for now in (0.0, 299.0, 300.0, 601.0):  # slots 0, 0, 1 and 2
        scene.forecast_scores.sampled(SERVICE, 11.0, now)
    assert scene.forecast_scores.violations == {"ns/web": 3}


def test_many_attempts_share_one_label() -> None:
    assert [attempts_label(count) for count in (1, 14, 15, 400)] == ["1", "14", "15+", "15+"]


def test_services_that_come_and_go_leave_no_series_and_no_counts_behind() -> None:
    scene = Scene()

    def series() -> int:
        return sum(len(family.samples) for family in scene.metrics.registry.collect())

    scene.forecast_scores.sampled(SERVICE, 50.0, 0.0)
    before = series()
    for number in range(1000):
        pod = SERVICE._replace(key=f"ns/w{number}-0", workload=f"ns/w{number}")
        scene.forecast_scores.sampled(pod, 50.0, 0.0)
        scene.forecast_scores.pod_gone(pod.key)
        scene.forecast_scores.workload_gone(f"ns/w{number}")
    scene.forecast_scores.workload_gone("ns/never-seen")
    assert series() == before
    assert scene.forecast_scores.violations == {"ns/web": 1}
    assert scene.value("qos_violations_total", workload="ns/web") == 1

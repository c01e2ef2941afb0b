"""Run times from habits in the operator: scored, kept over a restart, and never in the way of a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from engine_objects import pod

from cotide_core.events import PodPhase, PodUpserted, RunTimesForecasted
from cotide_core.forecasting.heuristics import HeuristicCompletion
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.models.learned_store import RUN_TIMES, DirectoryStore, Files, StoreSilent, TooLarge
from cotide_operator.models.run_time_habits import RunTimeHabits
from cotide_operator.observability.metrics import Metrics

MODEL = HeuristicCompletion()


class Replica:
    """One process after another over the same store."""

    def __init__(self, store: DirectoryStore | None, namespaces: tuple[str, ...] = ("shop",)) -> None:
        self.metrics = Metrics()
        scores = ForecastScores(self.metrics, lambda _: None, 300.0)
        self.habits = RunTimeHabits(
            scores, self.metrics, kept=store, keep_seconds=300.0, namespaces=lambda: namespaces, now=lambda: 0.0
        )
        asyncio.run(self.habits.restore())

    def run(self, number: int, seconds: float, namespace: str = "shop") -> list[Any]:
        """Let the run of a series come and succeed; returns what the engine is told at its arrival."""
        key = f"{namespace}/etl-{number}"
        one = pod(key, job=key, requested_seconds=60.0)
        forecast = self.habits.ahead([PodUpserted(one)], MODEL)
        over = one._replace(phase=PodPhase.SUCCEEDED, started_seconds=0.0, finished_seconds=seconds)
        self.habits.ahead([PodUpserted(over)], MODEL)
        return forecast

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"cotide_{name}", labels)


def test_what_was_learned_is_told_by_the_next_process_from_its_first_pod_on(tmp_path: Path) -> None:
    before = Replica(DirectoryStore(tmp_path))
    for number in range(12):
        before.run(number, 300.0)
    asyncio.run(before.habits.keep())
    assert before.value("learned_store_total", outcome="kept") == 1.0
    after = Replica(DirectoryStore(tmp_path))
    assert after.value("learned_store_total", outcome="restored") == 1.0
    (forecast,) = after.run(50, 300.0)
    assert isinstance(forecast, RunTimesForecasted)
    assert forecast.forecasts[0].seconds_p50 == pytest.approx(300.0, abs=2)


def test_of_what_is_too_large_for_its_store_as_much_is_kept_as_it_takes(tmp_path: Path) -> None:
    class Small(DirectoryStore):
        most_samples = 64  # type: ignore[assignment]

        async def save(self, part: str, learner: str, files: Mapping[str, bytes]) -> None:
            if sum(map(len, files.values())) > 30_000:
                raise TooLarge("too many bytes")
            await super().save(part, learner, files)

    tenants = [f"tenant-{number}" for number in range(100)]
    before = Replica(Small(tmp_path), ("shop", *tenants))
    for tenant in tenants:
        before.run(1, 300.0, tenant)
    for number in range(12):
        before.run(number, 300.0)
    asyncio.run(before.habits.keep())
    assert before.value("learned_store_total", outcome="kept") == 1.0
    (forecast,) = Replica(Small(tmp_path)).run(50, 300.0)
    assert forecast.forecasts[0].seconds_p50 == pytest.approx(300.0, abs=2)


def test_a_store_that_is_silent_at_the_start_is_asked_again_and_not_overwritten(tmp_path: Path) -> None:
    class Silent(DirectoryStore):
        silent = True

        async def load(self, part: str, learner: str) -> Files | None:
            if self.silent:
                raise StoreSilent("no answer")
            return await super().load(part, learner)

    before, store = Replica(DirectoryStore(tmp_path)), Silent(tmp_path)
    for number in range(12):
        before.run(number, 300.0)
    asyncio.run(before.habits.keep())
    after = Replica(store)
    after.run(50, 100.0, namespace="shop")
    asyncio.run(after.habits.keep())
    store.silent = False
    asyncio.run(after.habits.keep())
    for one in (after, Replica(DirectoryStore(tmp_path))):
        (forecast,) = one.run(60, 300.0)
        assert forecast.forecasts[0].seconds_p50 == pytest.approx(300.0, abs=2)


def test_habits_and_model_are_scored_beside_each_other() -> None:
    """Three runs of 100 s for which the model says 60: it misses each by 40; the habit knows the third."""
    replica = Replica(None)
    for number in range(3):
        replica.run(number, 100.0)
    assert replica.value("forecast_absolute_error_sum", forecaster="completion-model") == 120.0
    habits = replica.value("forecast_absolute_error_sum", forecaster="habits")
    assert habits is not None
    assert habits < 120.0
    assert replica.value("forecast_coverage_ratio", forecaster="completion-model", quantile="0.9") == 1.0


def test_nothing_is_written_where_nothing_was_learned(tmp_path: Path) -> None:
    replica = Replica(DirectoryStore(tmp_path))
    asyncio.run(replica.habits.keep())
    assert list(tmp_path.iterdir()) == []


def test_a_poisoned_store_is_refused_with_a_line_and_learning_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = Replica(DirectoryStore(tmp_path))
    before.run(1, 300.0)
    asyncio.run(before.habits.keep())
    file = tmp_path / RUN_TIMES / "habits.npz"
    file.write_bytes(file.read_bytes()[:-9] + b"somewhere")
    after = Replica(DirectoryStore(tmp_path))
    assert "habits.npz has sha256" in caplog.text
    assert after.value("learned_store_total", outcome="refused") == 1.0
    after.run(2, 300.0)
    assert after.habits.run_times.learned == 1


def test_a_namespace_that_is_gone_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    before = Replica(DirectoryStore(tmp_path), ("shop",))
    before.run(1, 300.0)
    before.run(1, 300.0, "bank")
    asyncio.run(before.habits.keep())
    after = Replica(DirectoryStore(tmp_path), ("shop", "bank"))
    assert len(after.habits.run_times.accuracies) == 1
    assert len(after.habits.run_times.forecaster) == 1


def test_a_pod_that_trips_it_is_left_to_the_completion_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(None)

    def fails(*_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(replica.habits.run_times.forecaster, "forecast", fails)
    assert replica.run(1, 300.0) == []
    assert "left to the completion model" in caplog.text
    assert replica.value("measurement_faults_total", place="run times") == 1.0


def test_an_operator_that_ends_while_the_store_is_asked_does_not_overwrite_it(tmp_path: Path) -> None:
    """At the end everything is kept, beside whatever is under way: here, asking once more a store that was silent."""

    class Slow(DirectoryStore):
        async def load(self, part: str, learner: str) -> Files | None:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    before = Replica(DirectoryStore(tmp_path))
    for number in range(12):
        before.run(number, 300.0)
    asyncio.run(before.habits.keep())
    after = Replica(None)
    after.run(50, 100.0)
    asked = asyncio.Event()

    async def end() -> None:
        after.habits._kept = Slow(tmp_path)
        restoring = asyncio.ensure_future(after.habits.restore())
        await asked.wait()
        restoring.cancel()
        await asyncio.gather(restoring, return_exceptions=True)
        keeping = asyncio.ensure_future(after.habits.keep())
        await asyncio.wait({keeping}, timeout=0.2)  # it asks once more
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    asyncio.run(end())
    (forecast,) = Replica(DirectoryStore(tmp_path)).run(60, 300.0)
    assert forecast.forecasts[0].seconds_p50 == pytest.approx(300.0, abs=2)


def test_a_namespace_of_the_same_name_that_was_made_anew_begins_anew() -> None:
    replica, uids = Replica(None), {"shop": "first"}
    replica.habits._uid_of = lambda name: uids[name]
    for number in range(12):
        replica.run(number, 300.0)
    asyncio.run(replica.habits.keep())
    asyncio.run(replica.habits.keep())
    assert replica.run(50, 300.0)
    uids["shop"] = "second"
    asyncio.run(replica.habits.keep())
    assert replica.run(60, 300.0) == []

"""A challenger of run times forecasts in shadow, takes over by merit; a restart goes on with whoever is in force."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import get_args

import pytest
import yaml
from engine_objects import pod
from pydantic import ValidationError

from cotide_core.events import PodPhase, PodUpserted, RunTimesForecasted
from cotide_core.forecasting.heuristics import HeuristicCompletion
from cotide_operator.config.settings import RetrainingSettings, RunTimePredictor
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.models.learned_store import RUN_TIMES, DirectoryStore
from cotide_operator.models.run_time_habits import CHALLENGE, RunTimeHabits, sentence_of
from cotide_operator.observability.metrics import Metrics
from cotide_predictors.learning.run_time_challenge import HOURS, RunTimeVerdict
from cotide_predictors.run_time.habits.live_catalogue import LIVE_PREDICTORS

MODEL = HeuristicCompletion()
ROOT = Path(__file__).parents[3]


class Replica:
    """One process after another over the same store; an hour passes with each run."""

    def __init__(
        self,
        store: DirectoryStore | None,
        predictor: RunTimePredictor = "exponential-smoothing",
        challenger: RunTimePredictor | None = "habits",
    ) -> None:
        self.metrics = Metrics()
        self.hour = 0
        self.habits = RunTimeHabits(
            ForecastScores(self.metrics, lambda _: None, 300.0),
            self.metrics,
            kept=store,
            keep_seconds=300.0,
            namespaces=lambda: ("shop",),
            now=lambda: 3600.0 * self.hour,
            predictor=predictor,
            challenger=challenger,
        )
        asyncio.run(self.habits.restore())

    def run(self, number: int) -> float | None:
        """Let a run of one of two series come and succeed, 20 s and 2,000 s by turns under one owner: a level lies
        between them and fits neither, the mixture tells them apart by their size. Returns what the engine is told."""
        self.hour += 1
        key, size = f"shop/etl-{number}", (2**20, 2**30)[number % 2]
        one = pod(key, job=key, requested_seconds=60.0, input_bytes=size)
        forecast = self.habits.ahead([PodUpserted(one)], MODEL)
        seconds = (20.0, 2000.0)[number % 2]
        over = one._replace(phase=PodPhase.SUCCEEDED, started_seconds=0.0, finished_seconds=seconds)
        self.habits.ahead([PodUpserted(over)], MODEL)
        if not forecast:
            return None
        assert isinstance(forecast[0], RunTimesForecasted)
        return forecast[0].forecasts[0].seconds_p50

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"cotide_{name}", labels)

    @property
    def champion(self) -> str:
        return self.habits.run_times.contenders[0].name


def test_a_challenger_that_is_better_for_two_days_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica(None)
    assert replica.value("run_time_predictor_info", predictor="exponential-smoothing", role="champion") == 1.0
    assert replica.value("run_time_predictor_info", predictor="habits", role="challenger") == 1.0
    for number in range(HOURS):
        replica.run(number)
    assert replica.champion == "exponential-smoothing"  # the last hour is still open
    with caplog.at_level(logging.INFO):
        replica.run(HOURS)
    assert replica.champion == "habits"
    assert "run times: habits takes over, its accuracy over the last 48 hours with runs was 0." in caplog.text
    assert replica.value("run_time_challenges_total", outcome="promoted") == 1.0
    assert replica.value("run_time_predictor_info", predictor="habits", role="champion") == 1.0
    assert replica.value("run_time_predictor_info", predictor="exponential-smoothing", role="challenger") == 1.0
    assert replica.run(HOURS + 1) == pytest.approx(2000.0, rel=0.1)


def test_in_shadow_nothing_of_a_challenger_is_told_and_both_are_scored() -> None:
    """The same runs without a challenger tell the same, which is what the mixture says."""
    beside, alone = Replica(None, "habits", "exponential-smoothing"), Replica(None, "habits", None)
    forecast = [(beside.run(number), alone.run(number)) for number in range(HOURS - 2)]
    assert all(one == other for one, other in forecast)
    assert forecast[-1][0] == pytest.approx(2000.0, rel=0.1)
    for forecaster in ("habits", "exponential-smoothing", "completion-model"):
        assert beside.value("forecast_absolute_error_count", forecaster=forecaster) == HOURS - 2
    loss = {
        name: beside.value("run_time_predictor_loss", predictor=name) for name in ("habits", "exponential-smoothing")
    }
    assert 0.0 < (loss["habits"] or 0.0) < (loss["exponential-smoothing"] or 0.0) < 1.0
    assert alone.value("run_time_predictor_info", predictor="exponential-smoothing", role="challenger") is None


def test_a_worse_challenger_stays_in_shadow() -> None:
    replica = Replica(None, "habits", "exponential-smoothing")
    for number in range(HOURS + 2):
        replica.run(number)
    assert replica.champion == "habits"
    assert replica.value("run_time_challenges_total", outcome="kept") == 1.0


def test_a_restart_goes_on_with_the_challenge_and_with_whoever_is_in_force(tmp_path: Path) -> None:
    before = Replica(DirectoryStore(tmp_path))
    for number in range(30):
        before.run(number)
    asyncio.run(before.habits.keep())
    middle = Replica(DirectoryStore(tmp_path))
    assert len(middle.habits.challenge.closed) == 29  # the open hour is lost
    for number in range(30, 52):
        middle.run(number)
    assert middle.champion == "habits"
    asyncio.run(middle.habits.keep())
    after = Replica(DirectoryStore(tmp_path))
    assert after.champion == "habits"
    assert after.run(53) == pytest.approx(2000.0, rel=0.1)


def test_who_is_in_force_stays_so_where_the_store_is_asked_twice(tmp_path: Path) -> None:
    """It is asked again where it did not answer at the start, and at the end where it is still being asked."""
    before = Replica(DirectoryStore(tmp_path))
    for number in range(52):
        before.run(number)
    asyncio.run(before.habits.keep())
    after = Replica(DirectoryStore(tmp_path))
    asyncio.run(after.habits.restore())
    assert after.champion == "habits"


def test_another_configuration_begins_with_its_own_champion_and_keeps_what_each_learned(tmp_path: Path) -> None:
    before = Replica(DirectoryStore(tmp_path))
    for number in range(52):
        before.run(number)
    assert before.champion == "habits"
    asyncio.run(before.habits.keep())
    after = Replica(DirectoryStore(tmp_path), "exponential-smoothing", "fmkf")
    assert after.champion == "exponential-smoothing"
    assert after.habits.challenge.closed == []
    assert [len(contender.forecaster) for contender in after.habits.run_times.contenders] == [1, 0]


def test_a_poisoned_challenge_is_refused_and_nothing_of_the_store_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = Replica(DirectoryStore(tmp_path))
    for number in range(12):
        before.run(number)
    asyncio.run(before.habits.keep())
    file = tmp_path / RUN_TIMES / CHALLENGE
    file.write_bytes(file.read_bytes()[:-9] + b"somewhere")
    after = Replica(DirectoryStore(tmp_path))
    assert "challenge.npz has sha256" in caplog.text
    assert after.habits.challenge.closed == []
    assert len(after.habits.run_times.forecaster) == 0


def test_the_configuration_takes_every_live_forecaster_and_no_challenge_against_itself() -> None:
    assert get_args(RunTimePredictor) == LIVE_PREDICTORS
    with pytest.raises(ValidationError, match="must differ from runTimePredictor"):
        RetrainingSettings(run_time_challenger="habits")
    with pytest.raises(ValidationError, match="needs runTimeHabits"):
        RetrainingSettings(run_time_habits=False, run_time_challenger="fmkf")


def test_no_forecaster_of_run_times_raises_the_alert_of_what_decides() -> None:
    """They are scored beside `completion`, which is what decided."""
    rules = yaml.safe_load((ROOT / "deploy" / "monitoring" / "rules.yaml").read_text(encoding="utf-8"))
    (alert,) = [
        rule
        for group in rules["spec"]["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "CotideForecastCoverageLow"
    ]
    excepted = alert["expr"].split('forecaster!~"')[1].split('"')[0].split("|")
    assert set(excepted) == {*LIVE_PREDICTORS, "completion-model"}


def test_what_became_of_a_challenge_is_said_in_a_sentence() -> None:
    assert sentence_of("fmkf", RunTimeVerdict(False, -0.02, 3)) == (
        "fmkf stays in shadow, it was worse in 3 namespaces; its accuracy over the last 48 hours with runs was 0.020"
        " lower"
    )
    assert sentence_of("fmkf", RunTimeVerdict(False, 0.001, 0)) == (
        "fmkf stays in shadow, it was not better beyond noise; its accuracy over the last 48 hours with runs was 0.001"
        " higher"
    )

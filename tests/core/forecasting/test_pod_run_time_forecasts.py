"""Run times that the driver tells go before the completion model's, for the pods that they are about and no other."""

from __future__ import annotations

import math

import pytest
from engine_objects import node_upserted, pod, pod_upserted

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import Event, ModelsChanged, PodDeleted, RunTimeForecast, RunTimesForecasted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Instruction
from cotide_core.recording.ledger import LedgerWriter
from cotide_lab.commands.ledger_replay import replay

FULL = pod_upserted("x", 1000, WorkloadClass.ONLINE, node="a")


def forecasts_of(*forecasts: tuple[str, float]) -> RunTimesForecasted:
    """Told p50, and twice that as p90, by name of a pod of the builders."""
    return RunTimesForecasted(tuple(RunTimeForecast(f"d/{name}", f"u-{name}", p, 2 * p) for name, p in forecasts))


def asks(name: str, seconds: float) -> Event:
    """A pod whose user asks for some seconds, which the heuristic believes."""
    return pod_upserted(name, 1000, requested_seconds=seconds)


def bound(instructions: list[Instruction]) -> list[Bind]:
    return [instruction for instruction in instructions if isinstance(instruction, Bind)]


def engine(policy: str = "qpsm") -> Scheduler:
    return Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())


def test_the_shortest_told_run_is_first_whatever_its_user_said() -> None:
    """One core; p asks for 10 s and takes 500, q asks for 100 s and takes 5."""
    scheduler = engine()
    events = [node_upserted("a", 1000), asks("p", 10.0), asks("q", 100.0)]
    (bind,) = bound(scheduler.handle([*events, forecasts_of(("p", 500.0), ("q", 5.0))], 0.0))
    assert bind.key == "d/q"
    assert (bind.forecast.seconds_p50, bind.forecast.seconds_p90) == (5.0, 10.0)
    assert bind.forecast.completion_model == "habits"


def test_a_pod_that_waits_already_is_queued_anew() -> None:
    scheduler = engine()
    scheduler.handle([node_upserted("a", 1000), FULL, asks("p", 10.0), asks("q", 100.0)], 0.0)
    assert scheduler.queue_positions()["d/p"] == 1
    scheduler.handle([forecasts_of(("q", 5.0))], 1.0)
    assert scheduler.queue_positions()["d/q"] == 1


def test_other_models_do_not_take_back_what_was_told() -> None:
    scheduler = engine()
    scheduler.handle([node_upserted("a", 1000), FULL, asks("p", 10.0), asks("q", 100.0), forecasts_of(("q", 5.0))], 0.0)
    scheduler.handle([ModelsChanged()], 1.0)
    assert scheduler.queue_positions()["d/q"] == 1


@pytest.mark.parametrize(
    "forecast",
    [
        RunTimeForecast("d/p", "another", 1.0, 2.0),
        RunTimeForecast("d/gone", "u-gone", 1.0, 2.0),
        RunTimeForecast("d/p", "u-p", 0.0, 2.0),
        RunTimeForecast("d/p", "u-p", math.nan, 2.0),
        RunTimeForecast("d/p", "u-p", 3.0, 2.0),
        RunTimeForecast("d/p", "u-p", 3.0, math.inf),
    ],
)
def test_what_can_not_be_or_is_about_nobody_counts_as_not_told(forecast: RunTimeForecast) -> None:
    scheduler = engine()
    (bind,) = bound(scheduler.handle([node_upserted("a", 1000), asks("p", 10.0), RunTimesForecasted((forecast,))], 0.0))
    assert (bind.forecast.seconds_p50, bind.forecast.completion_model) == (10.0, "heuristic")


def test_the_next_pod_of_the_same_name_is_another() -> None:
    scheduler = engine()
    scheduler.handle([node_upserted("a", 1000), FULL, asks("p", 10.0), forecasts_of(("p", 5.0))], 0.0)
    again = pod("p", 1000, requested_seconds=10.0)._replace(uid="second")
    events = [PodDeleted("d/p", "u-p"), pod_upserted("p", 1000, requested_seconds=10.0)]
    events[1] = type(events[1])(again)
    out = scheduler.handle([*events, PodDeleted("d/x", "u-x")], 1.0)
    assert [one.forecast.completion_model for one in bound(out)] == ["heuristic"]


@pytest.mark.parametrize("policy", ["qpsm", "easy", "svf"])
def test_a_ledger_with_told_run_times_replays_to_the_byte(policy: str) -> None:
    scheduler = engine(policy)
    writer = LedgerWriter(scheduler.config)
    lines = [writer.header()]
    calls: list[tuple[float, list[Event]]] = [
        (0.0, [node_upserted("a", 1000), asks("p", 10.0), asks("q", 100.0), forecasts_of(("p", 500.0), ("q", 5.0))]),
        (1.0, [forecasts_of(("p", 3.0))]),
        (9.0, [PodDeleted("d/q", "u-q")]),
    ]
    for now, events in calls:
        lines.append(writer.entry(now, events, scheduler.handle(events, now)))
    result = replay(lines, HeuristicCatalogue())
    assert (result.difference, result.cycles) == (None, 3)

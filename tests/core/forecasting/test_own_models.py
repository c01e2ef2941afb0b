"""Forecasters by namespace: whose pods taught a model, theirs alone it answers for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from engine_objects import pod

from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import Event, ModelsChanged, Node, NodeUpserted, OwnModels, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicQos
from cotide_core.forecasting.own_models import completion_by_namespace, qos_by_namespace, type_for
from cotide_core.forecasts import CompletionForecast, CompletionForecaster, MixBatch, QosAnswers, QosForecaster
from cotide_core.instructions import Bind
from cotide_core.kernels.array_types import Floats
from cotide_core.recording.ledger import LedgerWriter
from cotide_lab.commands.ledger_replay import replay


@dataclass(frozen=True)
class Says:
    """Answers the same about everything, and remembers what it was asked about."""

    number: float
    asked: list[str]

    @property
    def model_id(self) -> str:
        return f"{self.number}"

    def answer(self, mixes: MixBatch) -> QosAnswers:
        indices = np.zeros(len(mixes), np.int64) if mixes.service is None else mixes.service
        self.asked.extend(mixes.services[index] for index in indices.tolist())
        return QosAnswers.within(np.full(len(mixes), self.number))

    def violation_probability(self, mixes: MixBatch) -> Floats:
        return self.answer(mixes).probability

    def knows(self, job_type: str) -> bool:
        return job_type == "sort"

    def isolated_seconds(
        self, types: Sequence[str], input_bytes: Floats, requested_seconds: Floats
    ) -> CompletionForecast:
        self.asked.extend(types)
        return CompletionForecast(np.full(len(types), self.number), np.full(len(types), 2 * self.number))

    def slowdown(self, types: Sequence[str], requests_per_second: Floats, cpu_pressure: Floats) -> Floats:
        return np.full(len(types), 1.0 + self.number)

    def __hash__(self) -> int:
        return hash(self.number)


def mixes(services: tuple[str, ...], rows: list[int]) -> MixBatch:
    zeros, none = np.zeros(len(rows)), np.zeros((len(rows), 0))
    return MixBatch(zeros, zeros, zeros, zeros, (), none, none, services, np.array(rows))


def test_a_service_is_answered_for_by_its_own_namespace_and_by_the_pool_where_that_has_no_model() -> None:
    pooled, ours = Says(0.25, []), Says(0.75, [])
    both = qos_by_namespace(pooled, {"team": ours})
    answers = both.answer(mixes(("team/web", "shop/web"), [0, 1, 1, 0]))
    assert answers.probability.tolist() == [0.75, 0.25, 0.25, 0.75]
    assert (ours.asked, pooled.asked) == (["team/web"] * 2, ["shop/web"] * 2)
    assert both.answer(mixes(("shop/web",), [0])).probability.tolist() == [0.25]


def test_a_job_is_answered_for_by_its_own_namespace_under_its_plain_type() -> None:
    pooled, ours = Says(1.0, []), Says(3.0, [])
    both = completion_by_namespace(pooled, {"team": ours})
    types = [type_for(both, pod("team/a", type="sort")), type_for(both, pod("shop/a", type="sort"))]
    forecast = both.isolated_seconds(types, np.zeros(2), np.zeros(2))
    assert (forecast.p50.tolist(), forecast.p90.tolist()) == ([3.0, 1.0], [6.0, 2.0])
    assert both.slowdown(types, np.zeros(2), np.zeros(2)).tolist() == [4.0, 2.0]
    assert ours.asked == pooled.asked == ["sort"]
    assert both.knows(types[0])


def test_without_models_of_namespaces_nothing_stands_between() -> None:
    pooled = HeuristicQos()
    assert qos_by_namespace(pooled, {}) is pooled


class Shelf:
    """A catalogue of the two, and of the heuristic."""

    def __init__(self) -> None:
        self.models = {"": Says(1.0, []), "theirs": Says(500.0, [])}

    def qos(self, model_id: str) -> QosForecaster:
        return HeuristicQos()

    def completion(self, model_id: str) -> CompletionForecaster:
        return self.models[model_id]


def test_the_engine_forecasts_each_job_by_its_namespace_and_its_ledger_replays() -> None:
    config = SchedulerConfig(policy="fifo")
    engine, writer = Scheduler(config, Shelf()), LedgerWriter(config)
    node = Node("a", (("cpu", 4000), ("memory", 4000), ("pods", 9)))
    events: list[Event] = [NodeUpserted(node), ModelsChanged(own=(OwnModels("team", completion="theirs"),))]
    events += [PodUpserted(pod("team/a", type="sort")), PodUpserted(pod("shop/a", type="sort"))]
    out = engine.handle(events, 0.0)
    forecast = {one.key: one.forecast.seconds_p50 for one in out if isinstance(one, Bind)}
    assert forecast == {"team/a": 500.0 * 501.0, "shop/a": 1.0 * 2.0}, "alone, times the slowdown of each"
    lines = [writer.header(), writer.entry(0.0, events, out)]
    assert replay(lines, Shelf()).difference is None

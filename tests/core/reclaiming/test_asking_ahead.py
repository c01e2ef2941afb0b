"""By slack, one call of the forecaster serves many decisions, and no decision is another for it."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from engine_objects import node_upserted, pod, pod_upserted, running_pod
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import Event, PodUpserted, ServiceSampled, Workload, WorkloadUpserted
from cotide_core.forecasting.heuristics import HeuristicCompletion, HeuristicQos
from cotide_core.forecasts import CompletionForecaster, MixBatch, QosAnswers, QosForecaster
from cotide_core.instructions import Bind, Instruction
from cotide_core.qos.prediction_cache import AnswerTables
from cotide_core.qos.prefetched_answers import PrefetchedAnswers
from cotide_core.reclaiming import slack_scheduler
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import Shape, ShapeTable
from cotide_core.state.snapshot import Snapshot

NODES = 20


class Counted(HeuristicQos):
    """The heuristic, which answers each row by itself; counts its calls and the rows of each."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def answer(self, mixes: MixBatch) -> QosAnswers:
        self.rows.append(len(mixes))
        return super().answer(mixes)


class Models:
    def __init__(self) -> None:
        self.law = Counted()

    def qos(self, model_id: str) -> QosForecaster:
        return self.law

    def completion(self, model_id: str) -> CompletionForecaster:
        return HeuristicCompletion()


def services(rates: Sequence[float]) -> list[Event]:
    """A service on each node, at these rates."""
    events: list[Event] = [WorkloadUpserted(Workload("d/web", 10.0))]
    for number, rate in enumerate(rates):
        web = running_pod(f"web-{number}", f"n{number}", 500, cls=WorkloadClass.ONLINE, workload="d/web", ours=False)
        events += [node_upserted(f"n{number}", 8000), PodUpserted(web), ServiceSampled(web.key, rate)]
    return events


def decided(events: Sequence[Event], jobs: Sequence[Event]) -> tuple[list[Instruction], list[int]]:
    """What an engine says to a burst of jobs, and the rows of each call that it made for it."""
    models = Models()
    scheduler = Scheduler(SchedulerConfig(policy="predictive"), models)
    scheduler.handle(events, 0.0)
    models.law.rows.clear()
    return scheduler.handle(jobs, 1.0), models.law.rows


def without_asking_ahead(events: Sequence[Event], jobs: Sequence[Event]) -> tuple[list[Instruction], list[int]]:
    with patch.object(slack_scheduler, "MOST_AHEAD", 0):
        return decided(events, jobs)


def test_a_burst_of_jobs_on_quiet_nodes_takes_a_call_or_two() -> None:
    """32 behind the first are asked about with it; the next call is for the 34th at the latest."""
    jobs = [pod_upserted(f"j{number}", 500, type="sort") for number in range(40)]
    alone, many_calls = without_asking_ahead(services([1000.0] * NODES), jobs)
    out, calls = decided(services([1000.0] * NODES), jobs)
    assert len([one for one in out if isinstance(one, Bind)]) == 40
    assert len(many_calls) == 40
    assert len(calls) <= 4
    assert max(calls) <= slack_scheduler.MOST_AHEAD + slack_scheduler.WIDTH
    assert out == alone


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from((0.0, 5e3, 4e4, 2e5)), min_size=3, max_size=NODES),
    st.lists(
        st.tuples(
            st.sampled_from((250, 500, 3000)),
            st.sampled_from(("sort", "grep")),
            st.sampled_from((1, 2**33)),
            st.sampled_from((20.0, 900.0)),
            st.sampled_from((WorkloadClass.BATCH, WorkloadClass.GRATIS)),
        ),
        min_size=1,
        max_size=60,
    ),
)
def test_whatever_is_guessed_the_instructions_are_the_same(
    rates: list[float], drawn: list[tuple[int, str, int, float, WorkloadClass]]
) -> None:
    jobs = [
        pod_upserted(f"j{number}", cpu, cls, type=kind, input_bytes=size, requested_seconds=seconds)
        for number, (cpu, kind, size, seconds, cls) in enumerate(drawn)
    ]
    assert decided(services(rates), jobs)[0] == without_asking_ahead(services(rates), jobs)[0]


def test_an_answer_that_was_fetched_ahead_is_good_for_its_shape_and_its_nodes_as_they_were() -> None:
    """Asked about as rows 0 and 1 are now; then row 1 changes."""
    state = ClusterState()
    for name in ("a", "b", "c"):
        state.apply(node_upserted(name))
    snapshot, table, tables = Snapshot.of(state), ShapeTable(), AnswerTables()
    sort, grep = (table.of(pod("p", type=kind), state) for kind in ("sort", "grep"))
    index, _ = tables.index_of(snapshot, sort), tables.index_of(snapshot, grep)
    versions = state.columns.versions
    fetched = PrefetchedAnswers()
    marks = np.array([[row, versions[row], 0, 9] for row in (0, 1)])
    fetched.keep(np.array([0.1, 0.2]), marks, {sort: (0, 2)})

    def known(shape: Shape, *rows: int) -> bool:
        return fetched.write(shape, np.array(rows), tables, state.columns, 0.5)

    assert known(sort, 1, 0)
    assert tables.probabilities[index, :2].tolist() == [0.1, 0.2]
    assert not known(grep, 0)
    assert not known(sort, 0, 2)
    state.columns.touch(1, relief=False)
    assert known(sort, 0)
    assert not known(sort, 1)
    fetched.forget()
    assert not known(sort, 0)


@pytest.mark.parametrize("rates", [[0.0], [2e5] * 3])
def test_nothing_to_ask_about_asks_nothing_more_than_before(rates: list[float]) -> None:
    jobs = [pod_upserted("a", 1000, type="sort")]
    assert decided(services(rates), jobs) == without_asking_ahead(services(rates), jobs)

"""Training samples: what was measured beside which mix, and how long jobs ran under which contention."""

from __future__ import annotations

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    Event,
    Node,
    NodeContended,
    NodeUpserted,
    Pod,
    PodDeleted,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind
from cotide_core.recording.ledger import LedgerWriter
from cotide_core.recording.samples import POOL, MeasuredMix, SampleCollector, qos_samples, samples_from_ledger
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.node_columns import MAX_TYPES

NODE = NodeUpserted(Node("a", (("cpu", 4000), ("pods", 9))))
WEB = Pod("d/web", "w", WorkloadClass.ONLINE, (), 0.0, PodPhase.RUNNING, "a", workload="d/web")
JOB = Pod("d/job", "j", WorkloadClass.BATCH, (("cpu", 1000),), 0.0, PodPhase.RUNNING, "a", type="sort", input_bytes=7)
SECOND = JOB._replace(key="d/second", uid="s", type="grep")


class Tape:
    """Feeds a collector cycle by cycle."""

    def __init__(self, capacity: int = 100) -> None:
        self.state = ClusterState()
        self.collector = SampleCollector(capacity)
        self(0.0, WorkloadUpserted(Workload("d/web", 8.0)), NODE, PodUpserted(WEB))

    def __call__(self, now: float, *events: Event) -> None:
        for event in events:
            self.state.apply(event)
        self.collector.feed(self.state, events, now)


def finished(job: Pod, started: float, ended: float) -> PodUpserted:
    return PodUpserted(job._replace(phase=PodPhase.SUCCEEDED, started_seconds=started, finished_seconds=ended))


def test_a_latency_is_kept_with_the_mix_beside_it() -> None:
    tape = Tape()
    tape(1.0, PodUpserted(JOB), PodUpserted(SECOND), ServiceSampled("d/web", 500.0, 3.5))
    samples = tape.collector.qos()
    assert samples.latency_milliseconds.tolist() == [3.5]
    assert samples.mixes.types == ("grep", "sort")
    assert samples.mixes.counts.tolist() == [[1.0, 1.0]]
    assert samples.mixes.input_bytes.tolist() == [[7.0, 7.0]]
    assert samples.mixes.cpu_pressure.tolist() == [2000 / 4000]
    assert samples.mixes.requests_per_second.tolist() == [500.0]
    assert samples.mixes.limit_milliseconds.tolist() == [8.0]


def test_a_sample_without_latency_or_promise_teaches_nothing() -> None:
    tape = Tape()
    tape(1.0, ServiceSampled("d/web", 500.0), ServiceSampled("d/nobody", 5.0, 5.0))
    assert len(tape.collector.qos().mixes) == 0


def test_a_latency_beside_a_service_that_its_own_limit_holds_back_teaches_nothing() -> None:
    """No mix made it slow; a minute later nobody knows."""
    tape = Tape()
    tape(1.0, NodeContended("a", 1.0, throttled=True), ServiceSampled("d/web", 500.0, 30.0))
    assert len(tape.collector.qos().mixes) == 0
    tape(10.0, NodeContended("a", 10.0, 0.5), ServiceSampled("d/web", 500.0, 4.0))
    tape(11.0, NodeContended("a", 11.0, throttled=True))
    tape(90.0, ServiceSampled("d/web", 500.0, 5.0))
    assert tape.collector.qos().latency_milliseconds.tolist() == [4.0, 5.0]


def test_a_latency_of_zero_teaches_nothing() -> None:
    """A query that found no request says so; its logarithm would end all learning, and a store with it is refused."""
    tape = Tape()
    tape(1.0, ServiceSampled("d/web", 500.0, 0.0), ServiceSampled("d/web", 500.0, 1e-300))
    assert len(tape.collector.qos().mixes) == 0


def test_a_finished_job_is_kept_with_the_mean_contention_of_its_run() -> None:
    tape = Tape()
    tape(1.0, ServiceSampled("d/web", 100.0))
    tape(10.0, PodUpserted(JOB))
    tape(20.0, ServiceSampled("d/web", 300.0), PodUpserted(SECOND))
    tape(40.0, finished(JOB, started=11.0, ended=40.0))
    samples = tape.collector.completion()
    assert samples.types == ("sort",)
    assert samples.input_bytes.tolist() == [7.0]
    assert samples.seconds.tolist() == [40.0 - 11.0]
    # 10 s at 100 requests/s and 20 s at 300; 10 s with one job of 1000/4000 and 20 s with two.
    assert np.allclose(samples.requests_per_second, (10 * 100 + 20 * 300) / 30)
    assert np.allclose(samples.cpu_pressure, (10 * 0.25 + 20 * 0.5) / 30)


def test_a_failed_job_teaches_nothing() -> None:
    tape = Tape()
    tape(1.0, PodUpserted(JOB))
    tape(9.0, PodUpserted(JOB._replace(phase=PodPhase.FAILED, started_seconds=1.0, finished_seconds=9.0)))
    assert len(tape.collector.completion().types) == 0


def test_a_job_that_is_deleted_while_it_runs_is_followed_no_longer() -> None:
    tape = Tape()
    tape(0.0, PodUpserted(JOB))
    tape(5.0, PodDeleted(JOB.key, JOB.uid))
    # A namesake that was never seen running has no start to measure from: the old one's must not serve.
    tape(9.0, finished(JOB, 0.0, 9.0))
    assert tape.collector.completion().types == ()


def test_only_the_latest_samples_are_kept() -> None:
    tape = Tape(capacity=2)
    for second in (1, 2, 3):
        tape(float(second), ServiceSampled("d/web", 10.0 * second, float(second)))
    assert tape.collector.qos().latency_milliseconds.tolist() == [2.0, 3.0]


def test_a_ledger_gives_the_samples_that_were_taken_live() -> None:
    config = SchedulerConfig(policy="fifo")
    scheduler, writer, live = Scheduler(config, HeuristicCatalogue()), LedgerWriter(config), SampleCollector(100_000)
    lines = [writer.header()]

    def cycle(now: float, *events: Event) -> list[object]:
        out = scheduler.handle(events, now)
        live.feed(scheduler.state, events, now)
        lines.append(writer.entry(now, events, out))
        return list(out)

    waiting = JOB._replace(node=None, phase=PodPhase.PENDING, ours=True)
    cycle(0.0, WorkloadUpserted(Workload("d/web", 8.0)), NODE, PodUpserted(WEB))
    (bind,) = cycle(1.0, PodUpserted(waiting))
    assert isinstance(bind, Bind)
    cycle(2.0, ServiceSampled("d/web", 70.0, 2.0))
    cycle(3.0, PodUpserted(waiting._replace(node="a", phase=PodPhase.RUNNING)))
    cycle(9.0, finished(waiting._replace(node="a"), started=3.0, ended=9.0), ServiceSampled("d/web", 80.0, 1.0))
    qos, completion = samples_from_ledger(lines)
    assert qos.latency_milliseconds.tolist() == live.qos().latency_milliseconds.tolist() == [2.0, 1.0]
    assert qos.mixes.counts.tolist() == live.qos().mixes.counts.tolist() == [[1.0], [0.0]]
    assert completion.seconds.tolist() == live.completion().seconds.tolist() == [6.0]
    assert completion.requests_per_second.tolist() == live.completion().requests_per_second.tolist() == [70.0]


def test_only_namespaces_that_are_pooled_teach_and_no_foreign_type_is_learned_beside_them() -> None:
    tape = Tape()
    tape.collector = SampleCollector(100, lambda namespace: POOL if namespace == "d" else None)
    foreign = SECOND._replace(key="hostile/second")
    tape(1.0, PodUpserted(JOB), ServiceSampled("d/web", 500.0, 3.5))
    tape(2.0, PodUpserted(foreign), ServiceSampled("d/web", 500.0, 1e9))
    assert tape.collector.qos().latency_milliseconds.tolist() == [3.5]
    tape(20.0, finished(JOB, started=1.0, ended=20.0), finished(foreign, started=2.0, ended=1e12))
    assert tape.collector.completion().types == ("sort",)


def own(namespace: str) -> str:
    return POOL if namespace == "pooled" else namespace


def test_a_namespace_learns_from_its_own_pods_and_keeps_what_the_pool_runs_beside_it() -> None:
    tape = Tape()
    tape.collector = SampleCollector(100, own, 9)
    pooled, foreign = SECOND._replace(key="pooled/second"), SECOND._replace(key="other/second")
    tape(1.0, PodUpserted(JOB), PodUpserted(pooled), ServiceSampled("d/web", 500.0, 3.5))
    tape(2.0, PodUpserted(foreign), ServiceSampled("d/web", 500.0, 1e9))
    assert tape.collector.qos("d").latency_milliseconds.tolist() == [3.5], "a foreign word stood beside the second"
    tape(9.0, finished(JOB, started=1.0, ended=9.0), finished(foreign, started=2.0, ended=9.0))
    tape(9.0, finished(pooled, started=1.0, ended=8.0))
    seconds = {name: tape.collector.completion(name).seconds.tolist() for name in ("d", "other", POOL)}
    assert seconds == {"d": [8.0], "other": [7.0], POOL: [7.0]}


def test_no_namespace_takes_the_room_of_another_and_of_too_many_the_longest_silent_goes() -> None:
    tape = Tape()
    tape.collector = SampleCollector(2, own, 2)
    for number, namespace in enumerate(("d", "loud", "loud", "loud", "pooled", "third")):
        job = JOB._replace(key=f"{namespace}/{number}", uid=f"{number}")
        tape(number + 1.0, PodUpserted(job))
        tape(number + 1.5, finished(job, started=number + 1.0, ended=number + 1.5))
        if number == 4:
            assert len(tape.collector.completion("d").types) == 1, (
                "three of another namespace are no reason to forget it"
            )
    assert tape.collector.learners() == ["loud", POOL, "third"]
    assert (len(tape.collector.completion("loud").types), tape.collector.counts("loud")) == (2, (0, 3))


def test_types_that_never_met_are_columns_up_to_as_many_as_may_meet() -> None:
    """A tenant that names a new type each run would else make training as large as samples times types."""
    measured = [
        MeasuredMix("d/web", 1.0, 0.0, 10.0, 0.0, (("etl", 1, 7), (f"run-{number}", 2, 5)), 1.0)
        for number in range(MAX_TYPES + 40)
    ]
    mixes = qos_samples(measured).mixes
    assert len(mixes.types) == MAX_TYPES + 1
    assert mixes.types[0] == ""
    assert mixes.counts.sum(axis=1).tolist() == [3.0] * len(measured)
    assert mixes.input_bytes.sum(axis=1).tolist() == [12.0] * len(measured)
    assert mixes.counts[:, mixes.types.index("etl")].tolist() == [1.0] * len(measured)

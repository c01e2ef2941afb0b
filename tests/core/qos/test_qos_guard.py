"""What the latency guard remembers never changes what it would decide without a memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.events import (
    Node,
    NodeUpserted,
    Pod,
    PodDeleted,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadDeleted,
    WorkloadUpserted,
)
from cotide_core.forecasts import MixBatch, QosAnswers
from cotide_core.kernels.array_types import Floats
from cotide_core.qos import mix_batch as mix
from cotide_core.qos import prediction_cache as answers
from cotide_core.qos import qos_guard as guard
from cotide_core.qos.qos_guard import QosGuard
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import Shape, ShapeTable
from cotide_core.state.snapshot import Snapshot

ONLINE = WorkloadClass.ONLINE
GIB = 2**30
THRESHOLD = 0.5
NODES = 3
TYPES = ("sort", "grep")
SIZES = (1, 3)
CORES = (1000, 2000)
RATES = (0.0, 10.0, 30.0)


class Rising:
    """Forecasts that rise with all that a mix may have, and fall with the limit; each row by itself."""

    model_id = "rising"

    def violation_probability(self, mixes: MixBatch) -> Floats:
        load = mixes.requests_per_second + 0.5 * mixes.other_requests_per_second + 20.0 * mixes.cpu_pressure
        load = load + 3.0 * mixes.counts.sum(axis=1) + mixes.input_bytes.sum(axis=1) / GIB
        return load / (load + 4.0 * mixes.limit_milliseconds)

    def answer(self, mixes: MixBatch) -> QosAnswers:
        return QosAnswers.within(self.violation_probability(mixes))


def by_hand(state: ClusterState, shape: Shape, row: int) -> float:
    """The probability without any table or memory: from the pods that are on the row; 0 where nothing is at risk."""
    on = state.records_on(row)
    jobs = [(record.pod.type, record.pod.input_bytes) for record in on if record.pod.workload_class is not ONLINE]
    cores = sum(dict(record.pod.requests)["cpu"] for record in on if record.pod.workload_class is not ONLINE)
    services = []
    for record in sorted((one for one in on if one.pod.workload_class is ONLINE), key=lambda one: one.pod.key):
        promise = state.workload(record.pod.workload)
        if promise is not None:
            rate = record.requests_per_second
            rate = state.estimates.of(dict(record.pod.requests)["cpu"]) if rate is None else rate
            services.append((rate, promise.latency_p95_milliseconds))
    if shape.online:
        promise = state.workload(shape.fit.service)
        if promise is None or not (jobs or services):
            return 0.0
        expected = state.expected_rate(shape.fit.service)
        expected = state.estimates.of(shape.fit.millicores) if expected is None else expected
        services.append((expected, promise.latency_p95_milliseconds))
    elif not services:
        return 0.0
    else:
        jobs.append((shape.type, shape.input_bytes))
        cores += shape.fit.millicores
    total = sum(rate for rate, _ in services)
    asked = MixBatch(
        np.array([rate for rate, _ in services]),
        np.array([total - rate for rate, _ in services]),
        np.array([limit for _, limit in services]),
        np.full(len(services), cores / 8000),
        ("any",),
        np.full((len(services), 1), float(len(jobs))),
        np.full((len(services), 1), float(sum(size for _, size in jobs))),
    )
    return float(Rising().violation_probability(asked).max())


class Cluster:
    """A cluster, a guard with its memory, and pods to place."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.state.estimates.per_core = 100.0  # a replica asks for a tenth of a core: 10/s, one of `RATES`
        self.guard = QosGuard(THRESHOLD)
        self.table = ShapeTable()
        self.count = 0
        for number in range(NODES):
            self.state.apply(NodeUpserted(Node(f"n{number}", (("cpu", 8000), ("pods", 99)))))
        for name, limit in (("web", 5.0), ("db", 10.0)):
            self.state.apply(WorkloadUpserted(Workload(f"d/{name}", limit)))

    def job(self, kind: int, size: int, cores: int) -> Pod:
        self.count += 1
        base = Pod(f"d/j{self.count}", f"j{self.count}", WorkloadClass.BATCH, (("cpu", CORES[cores]),), 0.0, ours=True)
        return base._replace(type=TYPES[kind], input_bytes=SIZES[size] * GIB)

    def replica(self, service: str) -> Pod:
        self.count += 1
        base = Pod(f"d/s{self.count}", f"s{self.count}", ONLINE, (("cpu", 100),), 0.0, ours=True)
        return base._replace(workload=f"d/{service}")

    def run(self, pod: Pod, node: int) -> None:
        self.state.apply(PodUpserted(pod._replace(node=f"n{node}", phase=PodPhase.RUNNING)))

    def check(self, pods: list[Pod]) -> None:
        shapes = [self.table.of(pod, self.state) for pod in pods]
        snapshot = Snapshot.of(self.state)
        rows = np.arange(NODES)
        self.guard.prefetch(snapshot, [(shape, rows[: 1 + index]) for index, shape in enumerate(shapes)], Rising())
        for shape in shapes:
            given_ = self.guard.probabilities(snapshot, shape, rows, Rising())
            true = np.array([by_hand(self.state, shape, row) for row in range(NODES)])
            passes = true <= THRESHOLD
            assert ((given_ <= THRESHOLD) == passes).all(), "the memory decides nothing else"
            assert np.allclose(given_[passes], true[passes], rtol=1e-12)
            assert (given_[~passes] <= true[~passes] + 1e-12).all(), "a refusal's probability is the least it can be"
            for service, nodes, probability, row in self.guard.by_service(shape, np.flatnonzero(~passes)):
                assert (probability, row) == min((given_[one], one) for one in self.of(shape, service, passes))
                assert nodes == len(self.of(shape, service, passes))

    def of(self, shape: Shape, service: str, passes: np.ndarray) -> list[int]:
        refused = np.flatnonzero(~passes)
        names = self.guard.at_risk(shape, refused)[1]
        return [row for row, name in zip(refused.tolist(), names, strict=True) if name == service]


small = st.integers(0, 1)
nodes = st.integers(0, NODES - 1)
jobs = st.tuples(small, small, small)
moves = st.one_of(
    st.tuples(st.just("job"), jobs, nodes),
    st.tuples(st.just("replica"), st.sampled_from(["web", "db"]), nodes),
    st.tuples(st.just("rate"), st.integers(0, 9), st.sampled_from(RATES)),
    st.tuples(st.just("rate"), st.integers(0, 9), st.sampled_from(RATES)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("limit"), st.sampled_from([2.0, 20.0, None])),
    st.tuples(st.just("ask"), st.lists(jobs, min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("ask"), st.lists(jobs, min_size=1, max_size=3), st.booleans()),
)


def play(steps: list[tuple[object, ...]]) -> None:
    cluster = Cluster()
    cluster.run(cluster.replica("web"), 0)
    for step in steps:
        match step:
            case ("job", tuple(what), int(node)):
                cluster.run(cluster.job(*what), node)
            case ("replica", str(service), int(node)):
                cluster.run(cluster.replica(service), node)
            case ("rate", int(number), float(rate)):
                online = [r for r in cluster.state.records() if r.pod.workload_class is ONLINE]
                if online:
                    cluster.state.apply(ServiceSampled(online[number % len(online)].pod.key, rate))
            case ("end", int(number)):
                records = cluster.state.records()
                if records:
                    pod = records[number % len(records)].pod
                    cluster.state.apply(PodDeleted(pod.key, pod.uid))
            case ("limit", limit):
                change = WorkloadDeleted("d/web") if limit is None else WorkloadUpserted(Workload("d/web", limit))
                cluster.state.apply(change)
            case ("ask", list(whats), bool(online)):
                cluster.check([*(cluster.job(*what) for what in whats), *([cluster.replica("web")] if online else [])])


@settings(max_examples=60, deadline=None)
@given(st.lists(moves, max_size=25))
def test_what_is_remembered_decides_as_if_everything_were_asked_anew(steps: list[tuple[object, ...]]) -> None:
    play(steps)


@settings(max_examples=30, deadline=None)
@given(st.lists(moves, max_size=25))
def test_so_it_does_where_two_shapes_at_most_are_remembered(steps: list[tuple[object, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "SHAPES_REMEMBERED", 2)
        patch.setattr(guard, "SHAPES_REMEMBERED", 2)
        patch.setattr(guard, "CALL_ROWS", 2)
        play(steps)


@settings(max_examples=30, deadline=None)
@given(st.lists(moves, max_size=25))
def test_so_it_does_without_a_compiler(steps: list[tuple[object, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (guard, "cache_misses"), (guard, "take_answers"), (guard, "not_covered"), (guard, "by_service"),
            (mix, "mixes_of"),
        ):  # fmt: skip
            compiled = getattr(module, name)
            patch.setattr(module, name, getattr(compiled, "py_func", compiled))
        play(steps)


def test_a_replica_is_asked_about_anew_when_its_service_gets_busier_or_its_limit_tighter() -> None:
    cluster = Cluster()
    cluster.run(cluster.replica("web"), 0)
    cluster.run(cluster.job(0, 0, 0), 1)
    another = cluster.replica("web")
    cluster.check(
        [another]
    )  # row 1: 2.5 for the job's core, 3 for the job, 1 for its input; 6.5 / (6.5 + 4 * 5) passes
    cluster.state.apply(WorkloadUpserted(Workload("d/web", 1.0)))
    cluster.check([another])  # 6.5 / (6.5 + 4) does not, though nothing changed on row 1
    cluster.state.apply(WorkloadUpserted(Workload("d/web", 5.0)))
    cluster.state.apply(ServiceSampled("d/s1", 30.0))
    cluster.check([another])  # 36.5 / (36.5 + 20) does not

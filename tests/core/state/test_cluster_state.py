"""The state counts what pods hold, whatever order things are told in."""

from __future__ import annotations

import numpy as np
from engine_objects import node, pod
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.events import (
    BindRefused,
    HostPort,
    NodeDeleted,
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
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.node_columns import unmeasured

BATCH, ONLINE = WorkloadClass.BATCH, WorkloadClass.ONLINE


def free_cpu(state: ClusterState, name: str = "a") -> int:
    columns = state.columns
    return int(columns.free[columns.resources["cpu"], columns.row_of[name]])


def having(*events: object) -> ClusterState:
    state = ClusterState()
    for event in events:
        state.apply(event)  # type: ignore[arg-type]  # events by construction
    return state


def test_a_bound_pod_holds_its_requests() -> None:
    state = having(NodeUpserted(node(cpu=8000)), PodUpserted(pod(node="a")))
    assert free_cpu(state) == 8000 - 1000
    assert state.columns.free[state.columns.resources["pods"], 0] == 110 - 1


def test_a_pod_that_arrives_before_its_node_is_counted_when_the_node_comes() -> None:
    state = having(PodUpserted(pod(node="a")), NodeUpserted(node(cpu=8000)))
    assert free_cpu(state) == 7000


def test_a_node_that_registers_again_finds_its_pods_counted() -> None:
    state = having(NodeUpserted(node(cpu=8000)), PodUpserted(pod(node="a")), NodeDeleted("a"))
    assert "a" not in state.columns.row_of
    state.apply(NodeUpserted(node(cpu=4000)))
    assert free_cpu(state) == 4000 - 1000


def test_a_pod_that_is_deleted_while_its_node_is_away_is_not_counted_when_the_node_comes_back() -> None:
    gone = PodDeleted("d/p", "u-p")
    state = having(
        NodeUpserted(node(cpu=8000)), PodUpserted(pod(node="a")), NodeDeleted("a"), gone, NodeUpserted(node(cpu=8000))
    )
    assert free_cpu(state) == 8000


def test_a_resized_node_keeps_what_its_pods_hold() -> None:
    state = having(NodeUpserted(node(cpu=8000)), PodUpserted(pod(node="a")), NodeUpserted(node(cpu=2000)))
    assert free_cpu(state) == 2000 - 1000


def test_a_finished_pod_holds_nothing_and_a_terminating_one_still_does() -> None:
    state = having(NodeUpserted(node(cpu=8000)), PodUpserted(pod(node="a")))
    state.apply(PodUpserted(pod(node="a", terminating=True)))
    assert free_cpu(state) == 7000
    state.apply(PodUpserted(pod(node="a", phase=PodPhase.SUCCEEDED)))
    assert free_cpu(state) == 8000


def test_pods_of_other_schedulers_hold_too() -> None:
    assert free_cpu(having(NodeUpserted(node(cpu=8000)), PodUpserted(pod(node="a", ours=False)))) == 7000


def test_a_new_resource_gets_a_column_and_other_nodes_have_none_of_it() -> None:
    state = having(NodeUpserted(node("a", 8000)), NodeUpserted(node("b", 8000, offers={"example.com/gpu": 2})))
    column = state.columns.resources["example.com/gpu"]
    assert state.columns.free[column, :2].tolist() == [0, 2]


def test_an_assumed_pod_holds_until_it_is_forgotten() -> None:
    state = having(NodeUpserted(node(cpu=8000)), PodUpserted(pod()))
    state.assume("d/p", "a", 5.0)
    assert free_cpu(state) == 7000
    assert state.oldest_assumption() == 5.0
    assert state.forget("d/p")
    assert free_cpu(state) == 8000
    assert not state.forget("d/p")


def test_a_confirmed_pod_is_assumed_no_longer() -> None:
    state = having(NodeUpserted(node(cpu=8000)), PodUpserted(pod()))
    state.assume("d/p", "a", 5.0)
    state.apply(PodUpserted(pod(node="a")))
    assert state.oldest_assumption() is None
    assert free_cpu(state) == 7000


def test_a_report_without_a_node_leaves_the_assumption_in_place() -> None:
    state = having(NodeUpserted(node(cpu=8000)), PodUpserted(pod()))
    state.assume("d/p", "a", 5.0)
    state.apply(PodUpserted(pod(priority=5)))
    assert free_cpu(state) == 7000


def test_a_pod_that_is_confirmed_elsewhere_is_counted_there() -> None:
    state = having(NodeUpserted(node("a", 8000)), NodeUpserted(node("b", 8000)), PodUpserted(pod()))
    state.assume("d/p", "a", 5.0)
    state.apply(PodUpserted(pod(node="b")))
    assert (free_cpu(state, "a"), free_cpu(state, "b")) == (8000, 7000)


def test_a_refusal_of_another_incarnation_changes_nothing() -> None:
    state = having(NodeUpserted(node(cpu=8000)), PodUpserted(pod()))
    state.assume("d/p", "a", 5.0)
    state.apply(BindRefused("d/p", "another uid", "a", 409, "conflict", retry=False))
    assert free_cpu(state) == 7000
    state.apply(BindRefused("d/p", "u-p", "a", 500, "error", retry=True))
    assert free_cpu(state) == 8000


def test_a_late_delete_of_another_incarnation_changes_nothing() -> None:
    state = having(NodeUpserted(node(cpu=8000)), PodUpserted(pod(node="a")), PodDeleted("d/p", "another uid"))
    assert free_cpu(state) == 7000


def test_a_pod_made_anew_under_the_same_name_replaces_the_old_one() -> None:
    state = having(
        NodeUpserted(node(cpu=8000)), PodUpserted(pod(node="a")), PodUpserted(pod(node="a", cpu=3000, uid="new"))
    )
    assert free_cpu(state) == 8000 - 3000


def test_jobs_on_a_node_are_counted_by_type_with_their_input_and_reclaimed_cpu() -> None:
    requests = (("cotide.dev/reclaimed-cpu", 500),)
    state = having(
        NodeUpserted(node(cpu=8000)),
        PodUpserted(pod("d/1", node="a", type="sort", input_bytes=7)),
        PodUpserted(pod("d/2", node="a", type="sort", input_bytes=5, requests=requests)),
    )
    columns = state.columns
    column = columns.types["sort"]
    assert columns.type_counts[column, 0] == 2
    assert columns.type_bytes[column, 0] == 7 + 5
    assert columns.batch_millicores[0] == 1000 + 500


def test_an_online_pod_is_a_service_only_while_its_workload_promises_something() -> None:
    web = pod(node="a", workload_class=ONLINE, workload="d/web")
    state = having(NodeUpserted(node(cpu=8000)), PodUpserted(web), ServiceSampled("d/p", 300.0))
    assert state.columns.service_counts[0] == 0
    state.apply(WorkloadUpserted(Workload("d/web", 5.0, exclusive=True)))
    assert state.columns.service_counts[0] == state.columns.exclusive_counts[0] == 1
    assert state.columns.service_rates[0] == 300.0
    state.apply(WorkloadDeleted("d/web"))
    assert state.columns.service_counts[0] == state.columns.exclusive_counts[0] == 0


def test_a_rate_that_nobody_measured_is_no_rate_of_zero() -> None:
    web = pod(node="a", workload_class=ONLINE, workload="d/web")
    state = having(NodeUpserted(node(cpu=8000)), WorkloadUpserted(Workload("d/web")), PodUpserted(web))
    assert state.columns.promised_ahead[0, 0, 0] < 0.0
    assert state.expected_rate("d/web") is None
    state.apply(ServiceSampled("d/p", 0.0))
    assert state.columns.promised_ahead[0, 0, 0] == 0.0
    assert state.expected_rate("d/web") == 0.0
    assert state.eased == {0}, "a first measurement may bring a node back inside what a model learned"


def test_only_a_first_or_a_falling_rate_is_a_relief() -> None:
    web = pod(node="a", workload_class=ONLINE, workload="d/web")
    state = having(NodeUpserted(node(cpu=8000)), WorkloadUpserted(Workload("d/web")), PodUpserted(web))
    state.apply(ServiceSampled("d/p", 100.0))
    state.eased.clear()
    state.apply(ServiceSampled("d/p", 300.0))
    assert state.eased == set()
    state.apply(ServiceSampled("d/p", 200.0))
    assert state.eased == {0}


def test_one_more_replica_is_expected_to_be_as_busy_as_the_busiest() -> None:
    pods = [pod(f"d/{n}", node="a", workload_class=ONLINE, workload="d/web") for n in range(2)]
    state = having(WorkloadUpserted(Workload("d/web")), *map(PodUpserted, pods))
    for key, rate in (("d/0", 10.0), ("d/1", 30.0)):
        state.apply(ServiceSampled(key, rate))
    assert state.expected_rate("d/web") == 30.0
    assert state.expected_rate("d/unknown") is None


def test_a_heartbeat_that_changes_nothing_wakes_nobody() -> None:
    state = having(NodeUpserted(node(cpu=8000)))
    state.relieved.clear()
    clock = state.columns.clock
    state.apply(NodeUpserted(node(cpu=8000)))
    assert state.relieved == set()
    assert state.columns.clock == clock


def test_the_table_grows_beyond_its_first_capacity() -> None:
    state = having(*(NodeUpserted(node(f"n{number}", number)) for number in range(200)))
    assert [free_cpu(state, f"n{number}") for number in range(200)] == list(range(200))


NODES = ("a", "b", "c")
KEYS = ("d/1", "d/2", "d/3", "d/4")
PORT = HostPort("TCP", "10.0.0.1", 80)
maybe_node = st.sampled_from((None, *NODES))
pods = st.builds(
    lambda key, uid, at, phase, cls, cpu, kind, size, workload, ports: Pod(
        key, f"{key}-{uid}", cls, (("cpu", cpu),), 0.0, phase=phase, node=at, ours=True,
        workload=workload, type=kind, input_bytes=size, host_ports=ports,
    ),
    st.sampled_from(KEYS), st.integers(0, 1), maybe_node, st.sampled_from(PodPhase), st.sampled_from(WorkloadClass),
    st.sampled_from((0, 100, 250)), st.sampled_from(("", "sort", "grep")), st.integers(0, 5),
    st.sampled_from((None, "d/web", "d/db")), st.sampled_from(((), (PORT,))),
)  # fmt: skip
operations = st.one_of(
    st.builds(PodUpserted, pods),
    st.builds(PodUpserted, pods),
    st.builds(lambda key, uid: PodDeleted(key, f"{key}-{uid}"), st.sampled_from(KEYS), st.integers(0, 1)),
    st.builds(lambda name, cpu: NodeUpserted(node(name, cpu)), st.sampled_from(NODES), st.sampled_from((500, 900))),
    st.builds(NodeDeleted, st.sampled_from(NODES)),
    st.builds(
        lambda key, limit, exclusive: WorkloadUpserted(Workload(key, limit, exclusive)),
        st.sampled_from(("d/web", "d/db")), st.sampled_from((5.0, 10.0)), st.booleans(),
    ),
    st.builds(WorkloadDeleted, st.sampled_from(("d/web", "d/db"))),
    st.builds(ServiceSampled, st.sampled_from(KEYS), st.sampled_from((0.1, 0.2, 0.7))),
    st.tuples(st.just("assume"), st.sampled_from(KEYS), st.sampled_from(NODES)),
    st.tuples(st.just("forget"), st.sampled_from(KEYS)),
    st.builds(
        lambda key, uid, name: BindRefused(key, f"{key}-{uid}", name, 409, "", retry=True),
        st.sampled_from(KEYS), st.integers(0, 1), st.sampled_from(NODES),
    ),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(operations, max_size=40))
def test_counting_step_by_step_gives_what_a_recount_gives(steps: list[object]) -> None:
    state = ClusterState()
    for step in steps:
        if isinstance(step, tuple):
            record = state.record(step[1])
            if step[0] == "forget":
                state.forget(step[1])
            elif record is not None and record.node is None and record.pod.phase is PodPhase.PENDING:
                state.assume(step[1], step[2], 0.0)
        else:
            state.apply(step)  # type: ignore[arg-type]  # an event
        recount(state)


def recount(state: ClusterState) -> None:
    """Compare the columns with a count over all pods that ends in nothing but the pods' own reports."""
    columns = state.columns
    for name, row in columns.row_of.items():
        on = [
            r for r in state.records()
            if r.node == name and r.pod.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        ]  # fmt: skip
        held = columns.allocatable[:, row] - columns.free[:, row]
        assert held[columns.resources["cpu"]] == sum(dict(r.pod.requests)["cpu"] for r in on)
        assert held[columns.resources["pods"]] == len(on)
        jobs = [r.pod for r in on if r.pod.workload_class is not ONLINE]
        for kind, column in columns.types.items():
            assert columns.type_counts[column, row] == sum(job.type == kind for job in jobs)
            assert columns.type_bytes[column, row] == sum(job.input_bytes for job in jobs if job.type == kind)
        assert columns.batch_millicores[row] == sum(dict(job.requests)["cpu"] for job in jobs)
        services = [r for r in on if r.pod.workload_class is ONLINE and state.workload(r.pod.workload)]
        promises = [state.workload(r.pod.workload) for r in services]
        assert columns.service_counts[row] == len(services)
        assert columns.exclusive_counts[row] == sum(p is not None and p.exclusive for p in promises)
        rates = {r.pod.key: r.requests_per_second for r in services}
        assert columns.service_rates[row] == sum(rates[key] or 0.0 for key in sorted(rates))
        limits = {r.pod.key: p.latency_p95_milliseconds for r, p in zip(services, promises, strict=True) if p}
        assert {s.key: s.limit_milliseconds for s in columns.services[row]} == limits
        for slot, service in enumerate(columns.services[row]):
            found = columns.promised_ahead[0, slot, row], columns.promised_limits[slot, row]
            rate = rates[service.key]
            estimate = state.estimates.of(next(dict(r.pod.requests)["cpu"] for r in on if r.pod.key == service.key))
            assert found == (unmeasured(estimate) if rate is None else rate, limits[service.key])
            assert columns.workload_names[columns.promised_numbers[slot, row]] == service.workload
        ports = [port for r in on for port in r.pod.host_ports]
        assert columns.ports[row] == {port: ports.count(port) for port in ports}
    assert int(np.count_nonzero(columns.alive)) == len(columns.row_of)
    assumed = [r.pod.key for r in state.records() if r.assumed_seconds is not None]
    assert sorted(assumed) == sorted(r.pod.key for r in state.assumed())

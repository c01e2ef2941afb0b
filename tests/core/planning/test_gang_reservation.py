"""Room kept for the gang that has waited longest, under policies that plan nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_cluster import Catalogue, Cluster, bound, engine, node, pod, running

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.events import Gang, ModelsChanged, Node, NodeDeleted, NodeUpserted, PodDeleted, PodPhase, PodUpserted
from cotide_core.instructions import Instruction, Wait
from cotide_core.recording.ledger import LedgerWriter
from cotide_lab.commands.ledger_replay import replay

PRESENT = ("fifo", "fair", "random", "qpsm", "random-guarded", "hierarchical", "predictive")
AFTER = 30.0
TWO = {"a": (4000, 1 << 30), "b": (4000, 1 << 30)}


def gang_of(name: str, count: int, estimate: float = 10.0, **fields: object) -> list[PodUpserted]:
    rule = Gang(f"d/{name}", count, 600.0)
    return [pod(f"{name}-{at}", 1000, estimate, gang=rule, **fields) for at in range(count)]


def stream(policy: str, gang: int, until: int, **knobs: object) -> float | None:
    """Start of a gang of so many cores that comes at 20 s to eight cores, of which singles ask for ten without end.

    A single comes each second and runs for 7 to 13 s, as it says: hardly ever two end at once.
    """
    cluster = Cluster(policy, TWO, **knobs)
    for at in range(until):
        seconds = 7 + at * 5 % 7
        cluster.submit(f"s{at:03}", at, seconds, seconds, 1000)
    for at in range(gang):
        cluster.submit(f"g-{at}", 20, 10, 10, 1000, gang=Gang("d/g", gang, 600.0))
    starts = cluster.play()
    of_gang = {starts.get(f"d/g-{at}") for at in range(gang)}
    assert len(of_gang) == 1, "all pods of a gang start at once"
    return of_gang.pop()


@pytest.mark.parametrize("policy", PRESENT)
def test_a_gang_starts_under_an_endless_stream_of_small_pods(policy: str) -> None:
    """At 50 s it has waited 30 s; by 63 s all that run then have ended, and nobody who would run on came to them."""
    start = stream(policy, 6, 200, gang_reserve_seconds=AFTER)
    assert start is not None
    assert start <= 20 + AFTER + 13
    without = stream(policy, 6, 200)
    assert without is None or without > 190, "without the rule it starts when the stream ends"


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(PRESENT),
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=3, max_size=12),
    st.lists(st.integers(1, 8), min_size=1, max_size=3),
)
def test_every_gang_starts_in_bounded_time_also_where_pods_outlive_what_they_say(policy, singles, sizes) -> None:
    """A gang has its turn after those before it. It is planned within 20 s and what is expected ends within 40 s (20 s,
    and as long again for who outlives that); who passes before runs 20 s at most, and so does a gang."""
    cluster = Cluster(policy, TWO, gang_reserve_seconds=AFTER)
    bounds = [20 + AFTER + (at + 1) * (40 + 20 + 20) for at in range(len(sizes))]
    for at in range(int(bounds[-1]) + 60):
        run, says = singles[at % len(singles)]
        cluster.submit(f"s{at:03}", at, run, says, 1000)
    for number, size in enumerate(sizes):
        for at in range(size):
            cluster.submit(f"g{number}-{at}", 20, 20, 20, 1000, gang=Gang(f"d/g{number}", size, 600.0))
    starts = cluster.play()
    begun = sorted(starts[f"d/g{number}-0"] for number in range(len(sizes)))
    for number, size in enumerate(sizes):
        assert len({starts[f"d/g{number}-{at}"] for at in range(size)}) == 1
    assert all(start <= bound for start, bound in zip(begun, bounds, strict=True)), (begun, bounds)


FULL = (node("a"), running("r1", 2000, 50.0), running("r2", 1000, 100.0))
"""Four cores: two come back at 50 s, one at 100 s, one is free. A gang of three is kept room for from 50 s on."""


def waits(out: list[Instruction]) -> dict[str, str]:
    return {one.key.removeprefix("d/"): one.message for one in out if isinstance(one, Wait)}


@pytest.mark.parametrize("policy", PRESENT)
def test_who_ends_before_the_gang_starts_may_pass_and_nobody_else(policy: str) -> None:
    """At 30 s: 21 s more would end at 51, 20 s at 50."""
    scheduler, out = engine(policy, *FULL, *gang_of("g", 3), gang_reserve_seconds=AFTER)
    assert not bound(out)
    assert scheduler.next_wakeup(1.0) is not None
    scheduler.handle([], AFTER)
    out = scheduler.handle([pod("long", 1000, 21.0, AFTER)], AFTER)
    assert not bound(out)
    assert "1 kept for a gang that has waited longer" in waits(out)["long"]
    assert bound(scheduler.handle([pod("short", 1000, 20.0, AFTER)], AFTER)) == {"short": "a"}
    assert scheduler.predicted_starts(AFTER)["d/g-0"] == 50.0


def test_before_it_has_waited_so_long_nothing_is_kept() -> None:
    scheduler, _ = engine("fifo", *FULL, *gang_of("g", 3), gang_reserve_seconds=AFTER)
    assert bound(scheduler.handle([pod("long", 1000, 1000.0, 29.0)], 29.0)) == {"long": "a"}


def test_who_fits_beside_the_gang_may_pass_whatever_it_takes() -> None:
    """At 50 s three cores are free, and the gang is of two."""
    scheduler, _ = engine("fifo", *FULL, *gang_of("g", 2), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    assert bound(scheduler.handle([pod("long", 1000, 1e6, AFTER)], AFTER)) == {"long": "a"}
    ends = PodUpserted(running("r1", 2000, 50.0).pod._replace(phase=PodPhase.SUCCEEDED))
    assert set(bound(scheduler.handle([ends], 50.0))) == {"g-0", "g-1"}


def test_nodes_that_the_gang_does_not_need_are_open() -> None:
    """The two cores of a come back at 50 s, those of b at 500 s."""
    busy = [running("r1", 4000, 50.0), running("r2", 3000, 500.0, "b")]
    scheduler, _ = engine("fifo", node("a"), node("b"), *busy, *gang_of("g", 4), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    assert bound(scheduler.handle([pod("long", 1000, 1e6, AFTER)], AFTER)) == {"long": "b"}


def test_online_pods_and_those_of_a_higher_class_or_priority_are_not_kept_off() -> None:
    gratis = gang_of("g", 3, workload_class=WorkloadClass.GRATIS)
    for one in (
        pod("online", 1000, 0.0, AFTER, workload_class=WorkloadClass.ONLINE),
        pod("batch", 1000, 1e6, AFTER),
        pod("urgent", 1000, 1e6, AFTER, priority=5, workload_class=WorkloadClass.GRATIS),
    ):
        scheduler, _ = engine("fifo", *FULL, *gratis, gang_reserve_seconds=AFTER)
        scheduler.handle([], AFTER)
        assert bound(scheduler.handle([one], AFTER)), one.pod.key
    scheduler, _ = engine("fifo", *FULL, *gratis, gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    same = pod("same", 1000, 1e6, AFTER, workload_class=WorkloadClass.GRATIS)
    assert not bound(scheduler.handle([same], AFTER))


@pytest.mark.parametrize(("size", "passes"), [(2, False), (3, True)])
def test_other_namespaces_are_kept_off_half_of_what_there_is_and_no_more(size: int, passes: bool) -> None:
    """Of eight cores one is free, and the gang's 4 or 6 are when what is short has ended, all but the long one's."""
    rule = Gang("d/g", size, 600.0)
    gang = [pod(f"g-{at}", 2000, 10.0, gang=rule) for at in range(size)]
    rest = 8000 - 2000 * size
    busy = [running("short", 7000 - rest, 50.0), running("long", rest, 1e6)]
    scheduler, _ = engine("fifo", node("a", 8000), *busy, *gang, gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    mine = pod("mine", 1000, 1e6, AFTER)
    assert not bound(scheduler.handle([mine], AFTER))
    others = PodUpserted(mine.pod._replace(key="e/others", uid="others"))
    assert bound(scheduler.handle([others], AFTER)) == ({"e/others": "a"} if passes else {})


def test_a_gang_that_no_cluster_of_these_nodes_can_hold_keeps_nobody_off() -> None:
    scheduler, _ = engine("fifo", *FULL, *gang_of("g", 5), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    assert bound(scheduler.handle([pod("long", 1000, 1e6, AFTER)], AFTER)) == {"long": "a"}
    wakeup = scheduler.next_wakeup(AFTER)
    assert wakeup is not None
    assert wakeup > AFTER


def test_who_was_kept_off_is_tried_again_when_the_gang_is_gone_or_its_node_is() -> None:
    scheduler, _ = engine("fifo", *FULL, *gang_of("g", 3), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    assert not bound(scheduler.handle([pod("long", 1000, 1e6, AFTER)], AFTER))
    gone = [PodDeleted(f"d/g-{at}", f"u-g-{at}") for at in range(3)]
    assert bound(scheduler.handle(gone, AFTER + 1)) == {"long": "a"}


ONLINE = pod("web", 1000, 0.0, AFTER, workload_class=WorkloadClass.ONLINE, node="a", phase=PodPhase.RUNNING)
CORDONED = NodeUpserted(Node("a", (("cpu", 4000), ("memory", 1 << 30), ("pods", 110)), unschedulable=True))
LARGER = [PodDeleted("d/g-0", "u-g-0"), pod("g-9", 2000, 10.0, gang=Gang("d/g", 4, 600.0))]


@pytest.mark.parametrize("change", [[NodeDeleted("a")], [CORDONED], [ONLINE]], ids=["gone", "cordoned", "taken"])
def test_where_a_node_of_the_reservation_cannot_hold_the_gang_any_more_another_is_looked_for(change) -> None:
    """a is to be free at 50 s, b at 80 s, and c at 90 s."""
    busy = [running("r1", 4000, 50.0), running("r2", 4000, 80.0, "b"), running("r3", 2000, 90.0, "c")]
    nodes = (node("a"), node("b"), node("c", 2000))
    scheduler, _ = engine("fifo", *nodes, *busy, *gang_of("g", 4), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    assert scheduler.predicted_starts(AFTER)["d/g-0"] == 50.0
    scheduler.handle(change, AFTER + 1)
    assert scheduler.predicted_starts(AFTER + 1)["d/g-1"] == 80.0


def test_by_other_forecasts_a_start_is_looked_for_anew() -> None:
    scheduler, _ = engine("fifo", *FULL, *gang_of("g", 3), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    assert not bound(scheduler.handle([pod("long", 1000, 1e6, AFTER)], AFTER))
    assert not bound(scheduler.handle([ModelsChanged("", "other")], AFTER + 1))
    assert scheduler.predicted_starts(AFTER + 1)["d/g-0"] == 50.0


def test_where_its_pods_change_the_gang_is_planned_anew() -> None:
    """Three cores of a at 50 s and one of b now; with a pod of two cores in place of one it takes both of b at 80 s."""
    busy = [running("r1", 3000, 50.0), running("r0", 1000, 500.0), running("r2", 1000, 80.0, "b")]
    nodes = (node("a"), node("b", 2000))
    scheduler, _ = engine("fifo", *nodes, *busy, *gang_of("g", 4), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    assert scheduler.predicted_starts(AFTER)["d/g-1"] == 50.0
    scheduler.handle(LARGER, AFTER + 1)
    assert scheduler.predicted_starts(AFTER + 1)["d/g-1"] == 80.0


def test_a_gang_that_does_not_use_what_is_free_for_it_gives_it_back_for_a_while() -> None:
    """All of it is free from 40 s on, and the gang is kept from starting, as by a latency guard: 30 s later all may."""
    scheduler, _ = engine("fifo", *FULL, *gang_of("g", 3), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    refuse = lambda entry, *_: scheduler._queue.failed(entry, 40.0) or _Nothing()  # noqa: E731
    scheduler._gang_starts.attempt = refuse
    ended = [running("r1", 2000, 9.0).pod, running("r2", 1000, 9.0).pod]
    scheduler.handle([PodUpserted(one._replace(phase=PodPhase.FAILED)) for one in ended], 40.0)
    assert not bound(scheduler.handle([pod("long", 4000, 1e6, 69.0)], 69.0))
    assert bound(scheduler.handle([], 70.0)) == {"long": "a"}


class _Nothing:
    binds, waits, evictions, tried = (), (), (), 1


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(PRESENT),
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(1, 30), st.integers(1, 4)),
        min_size=1,
        max_size=20,
    ),
)
def test_without_gangs_every_decision_is_the_same_with_the_rule_and_without(policy, pods) -> None:
    starts = []
    for knobs in ({}, {"gang_reserve_seconds": 1.0}):
        cluster = Cluster(policy, TWO, **knobs)
        for number, (at, run, says, cores) in enumerate(pods):
            cluster.submit(f"s{number:02}", at, run, says, 1000 * cores)
        starts.append((cluster.play(), cluster.on))
    assert starts[0] == starts[1]


@pytest.mark.parametrize("policy", PRESENT)
def test_reservations_replay_byte_for_byte_and_older_headers_stay_as_they_were(policy: str) -> None:
    from cotide_core.cycle import Scheduler

    config = SchedulerConfig(policy=policy, gang_reserve_seconds=AFTER)
    scheduler, writer = Scheduler(config, Catalogue()), LedgerWriter(config)
    lines = [writer.header()]
    assert b"gang_reserve_seconds" in lines[0]
    assert b"gang_reserve_seconds" not in LedgerWriter(SchedulerConfig(policy=policy)).header()
    later = [pod("long", 1000, 21.0, AFTER), pod("short", 1000, 20.0, AFTER)]
    for now, events in ((0.0, [*FULL, *gang_of("g", 3)]), (AFTER, []), (AFTER, later), (51.0, [])):
        out = scheduler.handle(events, now)
        lines.append(writer.entry(now, events, out))
    assert replay(lines, Catalogue()).difference is None

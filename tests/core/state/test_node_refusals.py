"""A kubelet that refuses a pod is left alone for a while: by reason, for whom it concerns, and ever longer."""

from __future__ import annotations

import itertools
import math

import pytest
from engine_objects import node_upserted, pod
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    Node,
    NodeBackoffRestored,
    NodeDeleted,
    NodeUpserted,
    Pod,
    PodDeleted,
    PodPhase,
    PodRefused,
    PodUpserted,
    Tick,
    Toleration,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Wait
from cotide_core.policies import POLICIES
from cotide_core.recording.ledger import LedgerWriter
from cotide_core.state.node_refusals import LONGEST_SECONDS, Asked, NodeRefusals
from cotide_lab.commands.ledger_replay import replay

FIRST = 10.0


def engine(*events: Event, policy: str = "fifo") -> Scheduler:
    scheduler = Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())
    scheduler.handle(events, 0.0)
    return scheduler


def bound(scheduler: Scheduler, events: list[Event], now: float) -> list[str]:
    return [one.key.removeprefix("d/") for one in scheduler.handle(events, now) if isinstance(one, Bind)]


def messages(scheduler: Scheduler, events: list[Event], now: float) -> list[str]:
    return [one.message for one in scheduler.handle(events, now) if isinstance(one, Wait)]


def refused(one: Pod, now: float, reason: str = "MemoryPressure", at: str = "a") -> list[Event]:
    """What translation tells of a pod that was bound, and refused by its kubelet."""
    failed = one._replace(node=at, phase=PodPhase.FAILED)
    return [PodRefused(one.key, one.uid, at, reason, now), PodUpserted(failed)]


def runs(one: Pod) -> Event:
    return PodUpserted(one._replace(node="a", phase=PodPhase.RUNNING, started_seconds=0.0))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_burst_of_refusals_wastes_two_pods_at_most(policy: str) -> None:
    scheduler = engine(node_upserted("a", 4000), policy=policy)
    moments: list[float] = []
    now, number = 0.0, itertools.count()
    latest = pod(f"p{next(number)}")
    events: list[Event] = [PodUpserted(latest)]
    while now < 25.0:  # five looks a second, and a replacement at once, as a controller makes it
        if bound(scheduler, events, now):
            moments.append(now)
            events = refused(latest, now)
            latest = pod(f"p{next(number)}")
            events.append(PodUpserted(latest))
        else:
            events = [Tick()]
        now = round(now + 0.2, 3)
    # The first, and one that tries the node when its back-off of 10 s is over; the next would be 20 s later.
    assert len(moments) == 2
    assert 10.0 <= moments[1] <= 10.4


def test_the_engine_wakes_by_itself_when_a_back_off_is_over() -> None:
    first, second = pod("p0"), pod("p1")
    scheduler = engine(node_upserted("a", 4000), PodUpserted(first))
    (message,) = messages(scheduler, [*refused(first, 5.0), PodUpserted(second)], 5.0)
    assert message == "0/1 nodes are available: 1 node(s) recently refused a pod like this: MemoryPressure"
    assert scheduler.next_wakeup(5.0) == 5.0 + FIRST
    assert bound(scheduler, [Tick()], 5.0 + FIRST) == ["p1"]


def test_one_pod_tries_a_node_and_the_others_follow_when_it_runs() -> None:
    first = pod("p0")
    waiting = [pod(f"w{number}") for number in range(3)]
    scheduler = engine(node_upserted("a", 4000), PodUpserted(first))
    assert bound(scheduler, [*refused(first, 1.0), *map(PodUpserted, waiting)], 1.0) == []
    assert bound(scheduler, [Tick()], 11.0) == ["w0"]
    assert bound(scheduler, [PodUpserted(waiting[0]._replace(node="a"))], 12.0) == []
    assert bound(scheduler, [runs(waiting[0])], 13.0) == ["w1", "w2"]


def test_a_trial_that_is_refused_doubles_the_back_off_up_to_five_minutes() -> None:
    first = pod("p0")
    scheduler = engine(node_upserted("a", 4000), PodUpserted(first))
    now, waits = 0.0, []
    scheduler.handle(refused(first, now), now)
    for number in range(1, 9):
        one = pod(f"p{number}")
        scheduler.handle([PodUpserted(one)], now)
        due = scheduler.next_wakeup(now)
        while bound(scheduler, [Tick()], due or 0.0) == []:
            due = scheduler.next_wakeup(due or 0.0)
        waits.append((due or 0.0) - now)
        now = due or 0.0
        scheduler.handle(refused(one, now), now)
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]


def test_pods_that_were_on_their_way_belong_to_the_same_burst() -> None:
    several = [pod(f"p{number}") for number in range(4)]
    scheduler = engine(node_upserted("a", 4000), *map(PodUpserted, several))
    for one in several:
        scheduler.handle(refused(one, 1.0), 1.0)
    assert bound(scheduler, [PodUpserted(pod("next"))], 1.0) == []
    assert bound(scheduler, [Tick()], 1.0 + FIRST) == ["next"]


@pytest.mark.parametrize(
    ("reason", "fields", "waits"),
    [
        ("OutOfcpu", {}, True),
        ("OutOfpods", {}, True),
        ("OutOfexample.com/gpu", {}, False),
        ("NodeAffinity", {}, False),
        ("NodeAffinity", {"node_selector": ()}, False),
        ("UnexpectedAdmissionError", {}, True),
        ("UnexpectedAdmissionError", {"requests": (("cpu", 7),)}, False),
        ("NodeShutdown", {"requests": (("memory", 7),)}, True),
        ("DiskPressure", {"requests": ()}, True),
        ("SysctlForbidden", {}, False),
        ("OutOf", {}, False),
        ("", {}, False),
    ],
)
def test_a_refusal_keeps_those_away_whom_its_reason_concerns(
    reason: str, fields: dict[str, object], waits: bool
) -> None:
    first = pod("p0")
    scheduler = engine(node_upserted("a", 4000), PodUpserted(first))
    scheduler.handle(refused(first, 1.0, reason), 1.0)
    assert bound(scheduler, [PodUpserted(pod("p1", **fields))], 1.0) == ([] if waits else ["p1"])


def test_a_refused_affinity_keeps_those_away_that_select_nodes() -> None:
    first = pod("p0", node_selector=(("zone", "x"),))
    labelled = NodeUpserted(Node("a", (("cpu", 4000), ("pods", 110)), labels=(("zone", "x"),)))
    scheduler = engine(labelled, PodUpserted(first))
    scheduler.handle(refused(first, 1.0, "NodeAffinity"), 1.0)
    chosen = [PodUpserted(pod("p1", node_selector=(("zone", "x"),))), PodUpserted(pod("p2"))]
    assert bound(scheduler, list(chosen), 1.0) == ["p2"]


def test_other_nodes_are_as_open_as_before() -> None:
    first = pod("p0")
    scheduler = engine(node_upserted("a", 4000), PodUpserted(first))
    scheduler.handle(refused(first, 1.0), 1.0)
    assert bound(scheduler, [node_upserted("b", 4000), PodUpserted(pod("p1"))], 1.0) == ["p1"]


def test_nobody_closes_a_node_by_binding_pods_there_himself() -> None:
    scheduler = engine(node_upserted("a", 4000))
    own = pod("own", node="a")  # it came with a node: this engine did not choose it
    scheduler.handle([PodUpserted(own), *refused(own, 1.0)], 1.0)
    assert bound(scheduler, [PodUpserted(pod("p1"))], 1.0) == ["p1"]


@pytest.mark.parametrize("ending", ["deleted", "replaced", "failed by itself", "never answered"])
def test_a_trial_that_goes_without_an_answer_makes_way_for_the_next(ending: str) -> None:
    first, trial, third = pod("p0"), pod("p1"), pod("p2")
    scheduler = engine(node_upserted("a", 4000), PodUpserted(first))
    scheduler.handle([*refused(first, 0.0), PodUpserted(trial), PodUpserted(third)], 0.0)
    assert bound(scheduler, [Tick()], 10.0) == ["p1"]
    events: list[Event] = [PodUpserted(trial._replace(node="a"))]
    assert bound(scheduler, events, 10.5) == []
    if ending == "deleted":
        assert bound(scheduler, [PodDeleted(trial.key, trial.uid)], 11.0) == ["p2"]
    elif ending == "replaced":  # under its name, and by a pod that waits for a gate: the third is next
        other = trial._replace(uid="another", gates=("wait",))
        assert bound(scheduler, [PodUpserted(other)], 11.0) == ["p2"]
    elif ending == "failed by itself":
        assert bound(scheduler, [PodUpserted(trial._replace(node="a", phase=PodPhase.FAILED))], 11.0) == ["p2"]
    else:
        assert bound(scheduler, [Tick()], 20.0) == ["p2"]


def test_a_node_that_went_and_came_back_starts_anew() -> None:
    first = pod("p0")
    scheduler = engine(node_upserted("a", 4000), PodUpserted(first))
    scheduler.handle([*refused(first, 1.0), NodeDeleted("a")], 1.0)
    assert bound(scheduler, [node_upserted("a", 4000), PodUpserted(pod("p1"))], 2.0) == ["p1"]


@pytest.mark.parametrize("condition", ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"])
def test_a_condition_keeps_pods_away_unless_they_tolerate_its_taint(condition: str) -> None:
    keys = {"MemoryPressure": "memory-pressure", "DiskPressure": "disk-pressure", "PIDPressure": "pid-pressure"}
    key = "node.kubernetes.io/" + keys.get(condition, "network-unavailable")
    scheduler = engine(node_upserted("a", 4000, pressures=(condition,)))
    (message,) = messages(scheduler, [PodUpserted(pod("p1"))], 1.0)
    assert message == f"0/1 nodes are available: 1 node(s) had condition {condition}"
    tolerant = pod("p2", tolerations=(Toleration(key, "Exists", "", "NoSchedule"),))
    assert bound(scheduler, [PodUpserted(tolerant)], 2.0) == ["p2"]
    assert bound(scheduler, [node_upserted("a", 4000)], 3.0) == ["p1"]


def test_the_end_of_a_condition_ends_the_back_off_for_it() -> None:
    first = pod("p0")
    scheduler = engine(node_upserted("a", 4000), PodUpserted(first))
    scheduler.handle(
        [*refused(first, 1.0), node_upserted("a", 4000, pressures=("MemoryPressure",)), PodUpserted(pod("p1"))], 1.0
    )
    assert bound(scheduler, [node_upserted("a", 4000)], 2.0) == ["p1"]


@pytest.mark.parametrize("policy", ["fifo", "qpsm", "hierarchical", "easy", "conservative"])
def test_a_ledger_with_refusals_replays_exactly(policy: str) -> None:
    config = SchedulerConfig(policy=policy)
    scheduler, writer = Scheduler(config, HeuristicCatalogue()), LedgerWriter(config)
    lines = [writer.header()]
    first, trial = pod("p0"), pod("p1")
    calls: list[tuple[list[Event], float]] = [
        ([node_upserted("a", 4000), PodUpserted(first)], 0.0),
        ([*refused(first, 0.5), PodUpserted(trial)], 0.5),
        ([Tick()], 10.5),
        (
            [*refused(trial, 11.0), node_upserted("a", 4000, pressures=("MemoryPressure",)), PodUpserted(pod("p2"))],
            11.0,
        ),
        ([node_upserted("a", 4000)], 12.0),
    ]
    for events, now in calls:
        lines.append(writer.entry(now, events, scheduler.handle(events, now)))
    assert sum(b'"Bind"' in line for line in lines) == 3
    assert replay(lines, HeuristicCatalogue()).difference is None


def restarted(before: Scheduler, now: float, *events: Event, policy: str = "fifo") -> Scheduler:
    """An engine that knows of the one before it no more than what that one tells of nodes."""
    return engine(node_upserted("a", 4000), *events, *before.state.backoffs(now), policy=policy)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_an_engine_that_follows_another_leaves_a_node_alone_for_the_rest_of_its_back_off(policy: str) -> None:
    first = pod("p0")
    before = engine(node_upserted("a", 4000), PodUpserted(first), policy=policy)
    before.handle(refused(first, 5.0), 5.0)
    after = restarted(before, 6.0, policy=policy)
    (message,) = messages(after, [PodUpserted(pod("p1"))], 7.0)
    assert message.endswith("1 node(s) recently refused a pod like this: MemoryPressure")
    assert after.next_wakeup(7.0) == 5.0 + FIRST
    assert bound(after, [Tick()], 5.0 + FIRST) == ["p1"]


def test_refusals_in_a_row_are_counted_across_a_restart() -> None:
    first, second, third = pod("p0"), pod("p1"), pod("p2")
    before = engine(node_upserted("a", 4000), PodUpserted(first))
    before.handle([*refused(first, 0.0), PodUpserted(second)], 0.0)
    assert bound(before, [Tick()], 10.0) == ["p1"]
    # It ends while p1 tries the node: the next one knows that p1 does, and closes the node twice as long.
    after = restarted(before, 10.0, PodUpserted(second._replace(node="a")), PodUpserted(third))
    assert bound(after, [Tick()], 11.0) == []
    assert bound(after, refused(second, 12.0), 12.0) == []
    assert after.next_wakeup(12.0) == 12.0 + 2 * FIRST
    # And the one after that: p2 tries the node at 32 s, is refused, and the node is closed for four times as long.
    last = restarted(after, 12.0, PodUpserted(third))
    assert bound(last, [Tick()], 32.0) == ["p2"]
    last.handle([*refused(third, 33.0), PodUpserted(pod("p3"))], 33.0)
    assert last.next_wakeup(33.0) == 33.0 + 4 * FIRST


def test_a_node_whose_back_off_was_over_is_tried_by_one_pod_after_a_restart() -> None:
    first, waiting = pod("p0"), [pod(f"w{number}") for number in range(3)]
    before = engine(node_upserted("a", 4000), PodUpserted(first))
    before.handle(refused(first, 0.0), 0.0)
    before.handle([Tick()], 11.0)  # half open
    after = restarted(before, 11.0)
    assert bound(after, [*map(PodUpserted, waiting)], 12.0) == ["w0"]


@pytest.mark.parametrize(
    ("phase", "goes"), [(PodPhase.RUNNING, ["p2"]), (PodPhase.SUCCEEDED, ["p2"]), (None, []), (PodPhase.PENDING, [])]
)
def test_a_trial_that_ran_while_nobody_watched_opens_the_node(phase: PodPhase | None, goes: list[str]) -> None:
    first, trial = pod("p0"), pod("p1")
    before = engine(node_upserted("a", 4000), PodUpserted(first))
    before.handle([*refused(first, 0.0), PodUpserted(trial)], 0.0)
    assert bound(before, [Tick()], 10.0) == ["p1"]
    there = [] if phase is None else [PodUpserted(trial._replace(node="a", phase=phase, started_seconds=11.0))]
    after = restarted(before, 10.0, *there)
    # Gone without a word (None) says nothing: the node stays closed for as long as the trial had, until 20 s.
    assert bound(after, [PodUpserted(pod("p2"))], 15.0) == goes
    assert bound(after, [Tick()], 20.0) == ([] if goes else ["p2"])


@pytest.mark.parametrize("reason", ["UnexpectedAdmissionError", "OutOfcpu", "NodeAffinity"])
def test_a_restored_refusal_concerns_the_same_pods(reason: str) -> None:
    first = pod("p0", requests=(("cpu", 7),))
    before = engine(node_upserted("a", 4000), PodUpserted(first))
    before.handle(refused(first, 1.0, reason), 1.0)
    asks = {"same": (("cpu", 7),), "more": (("cpu", 8),), "memory": (("memory", 7),)}
    found = [bound(restarted(before, 1.0), [PodUpserted(pod(name, requests=asks[name]))], 1.0) for name in asks]
    expected = {"UnexpectedAdmissionError": [[], ["more"], ["memory"]], "OutOfcpu": [[], [], ["memory"]]}
    assert found == expected.get(reason, [["same"], ["more"], ["memory"]])


def test_what_says_nothing_of_a_node_that_is_there_closes_none() -> None:
    restored = [NodeBackoffRestored("b", "MemoryPressure", 99.0), NodeBackoffRestored("a", "SysctlForbidden", 99.0)]
    scheduler = engine(node_upserted("a", 4000), *restored)
    assert bound(scheduler, [node_upserted("b", 4000), PodUpserted(pod("p1")), PodUpserted(pod("p2"))], 1.0)
    assert not scheduler.state.refusals.by_node


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["refuse", "place", "passed", "left", "advance"]), st.integers(0, 3), st.floats(0, 400)
        ),
        max_size=40,
    )
)
def test_at_most_one_pod_tries_a_node_and_every_wait_ends(steps: list[tuple[str, int, float]]) -> None:
    refusals, now = NodeRefusals(), 0.0
    asked = Asked(("cpu", "pods"), ((0, 1), (2, 1)), selects=False)
    for what, number, seconds in steps:
        now, key = now + seconds, f"p{number}"
        refusals.advance(now)
        if what == "refuse":
            refusals.refuse("a", key, asked, "OutOfcpu", now)
        elif what == "place" and refusals.refusal("a", asked) is None:
            tried = bool(refusals.by_node)
            refusals.place("a", key, asked, now)
            assert (refusals.refusal("a", asked) == "OutOfcpu") == tried  # nobody else, while this one tries
        elif what == "passed":
            refusals.passed(key)
        elif what == "left":
            refusals.left(key)
        assert ("a" in refusals.closed) == (refusals.refusal("a", asked) is not None)
        if refusals.closed:
            assert now < refusals.next_change() <= now + LONGEST_SECONDS
    while refusals.by_node:
        refusals.advance(refusals.next_change())
    assert refusals.next_change() == math.inf

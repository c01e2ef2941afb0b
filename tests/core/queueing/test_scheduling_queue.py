"""Who is next, who waits for what, and that nobody is lost or starved."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.events import Pod
from cotide_core.queueing.ordering import ArrivalOrder, Order, PredictedShortestFirst, RandomOrder
from cotide_core.queueing.queued_pod import QueuedPod, QueueState
from cotide_core.queueing.scheduling_queue import SchedulingQueue
from cotide_core.queueing.stepwise import finished
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import ShapeTable

CONFIG = SchedulerConfig(backoff_initial_seconds=1, backoff_max_seconds=10, unschedulable_flush_seconds=60)
SHORTEST = PredictedShortestFirst(age_back_seconds=300, overtaking_seconds=1000)
STATE, SHAPES = ClusterState(), ShapeTable()


def entry(name: str, seconds: float = 0.0, created: float = 0.0, shape: int = 1, **fields: object) -> QueuedPod:
    """Return a batch pod; pods of another `shape` ask for another amount of cpu."""
    base = Pod(f"d/{name}", f"uid-{name}", WorkloadClass.BATCH, (("cpu", shape),), created, ours=True)
    pod = base._replace(**fields)  # type: ignore[arg-type]  # fields are named by each test
    return QueuedPod(pod, SHAPES.of(pod, STATE), entry.counter(), seconds_p50=seconds, seconds_p90=seconds)


def _counter() -> int:
    _counter.value += 1  # type: ignore[attr-defined]  # a function with a memory is enough for a test
    return _counter.value  # type: ignore[attr-defined,no-any-return]  # as above


_counter.value = 0  # type: ignore[attr-defined]  # as above
entry.counter = _counter  # type: ignore[attr-defined]  # as above


def queue(order: Order = SHORTEST, config: SchedulerConfig = CONFIG) -> SchedulingQueue:
    return SchedulingQueue(order, config)


def names(entries: list[QueuedPod]) -> list[str]:
    return [one.pod.key.removeprefix("d/") for one in entries]


def drain(waiting: SchedulingQueue) -> list[str]:
    out = []
    while (one := waiting.pop()) is not None:
        out.append(one)
    return names(out)


def filled(waiting: SchedulingQueue, *entries: QueuedPod) -> SchedulingQueue:
    for one in entries:
        waiting.add(one, 0.0)
    return waiting


def test_online_comes_before_batch_before_gratis_whatever_the_policy() -> None:
    for order in (ArrivalOrder(), RandomOrder(1), SHORTEST):
        pods = [
            entry("gratis", 1, workload_class=WorkloadClass.GRATIS, job_priority=1000),
            entry("batch", 2),
            entry("online", 3, created=9, workload_class=WorkloadClass.ONLINE),
        ]
        assert drain(filled(queue(order), *pods)) == ["online", "batch", "gratis"]


def test_within_a_class_the_pod_priority_comes_first() -> None:
    assert drain(filled(queue(), entry("low", 1), entry("high", 99, priority=5))) == ["high", "low"]


def test_qpsm_takes_the_highest_sub_queue_and_in_it_the_shortest_job() -> None:
    pods = [entry("long", 50), entry("short", 5), entry("urgent", 500, job_priority=200)]
    assert drain(filled(queue(), *pods)) == ["urgent", "short", "long"]


def test_equal_jobs_keep_the_order_of_arrival() -> None:
    assert drain(filled(queue(), *(entry(f"p{number}", 5) for number in range(5)))) == [f"p{n}" for n in range(5)]


def test_a_job_that_fails_its_first_placement_goes_down_one_level_and_comes_back() -> None:
    waiting = filled(
        queue(), entry("first", 1), entry("other", 50, shape=2), entry("lower", 1, shape=3, job_priority=99)
    )
    failed = waiting.pop()
    assert failed is not None
    waiting.failed(failed, 0.0)
    assert failed.demotions == 1
    # One level down it stands with the jobs of priority 99, still by its size.
    assert names(finished(waiting.order_steps(1.0))) == ["other", "first", "lower"]
    assert names(finished(waiting.order_steps(300.0))) == ["first", "other", "lower"]


def test_a_job_whose_binding_was_lost_moves_to_the_front_when_it_has_aged() -> None:
    waiting = filled(queue(), entry("lost", 90))
    lost = waiting.pop()
    assert lost is not None
    waiting.placed(lost, 0.0)
    waiting.advance(2.0)
    waiting.back_off(lost, 5.0)
    waiting.advance(6.0)
    waiting.add(entry("short", 1, created=900.0), 900.0)
    assert names(waiting.ahead(2)) == ["short", "lost"]
    waiting.advance(1000.0)  # it was overtaken in its first 1,000 s only
    assert names(waiting.ahead(2)) == ["lost", "short"]


def test_only_the_first_failure_demotes_and_fifo_never_does() -> None:
    for order, demotions in ((SHORTEST, 1), (ArrivalOrder(), 0)):
        waiting = filled(queue(order), entry("p"))
        for _ in range(3):
            one = waiting.pop()
            assert one is not None
            waiting.failed(one, 0.0)
            waiting.wake(one.shape, 0.0, urgent=True)
        assert (one.demotions, one.attempts) == (demotions, 3)


def test_a_demoted_job_that_stays_active_moves_up_when_it_has_aged() -> None:
    waiting = filled(queue(), entry("demoted", 1))
    one = waiting.pop()
    assert one is not None
    waiting.failed(one, 0.0)
    waiting.wake(one.shape, 0.0, urgent=True)
    waiting.add(entry("rival", 50, shape=2), 0.0)
    waiting.advance(299.0)
    assert names(waiting.ahead(2)) == ["rival", "demoted"]
    waiting.advance(300.0)
    assert names(waiting.ahead(2)) == ["demoted", "rival"]


def test_a_long_job_is_placed_before_an_endless_stream_of_short_ones() -> None:
    """Its bound: shorter jobs overtake it in its first 1,000 s only."""
    waiting = filled(queue(), entry("long", 500))
    now = 0.0
    for number in range(3000):
        now = float(number)
        waiting.add(entry(f"short{number}", 1, created=now), now)
        waiting.advance(now)
        placed = waiting.pop()
        assert placed is not None
        waiting.placed(placed, now)
        if names([placed]) == ["long"]:
            break
    assert now == 1000.0


def test_random_order_is_drawn_from_the_uids_and_the_seed() -> None:
    pods = [entry(f"p{number}") for number in range(20)]
    first, again, other = (drain(filled(queue(RandomOrder(seed)), *pods)) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == sorted(other)


def test_backoff_doubles_per_attempt_up_to_its_maximum() -> None:
    assert [queue().backoff_seconds(attempts) for attempts in (1, 2, 3, 4, 5, 99)] == [1, 2, 4, 8, 10, 10]


def test_a_refused_bind_is_tried_again_after_its_backoff() -> None:
    waiting = filled(queue(), entry("p"))
    one = waiting.pop()
    assert one is not None
    one.attempts = 2
    waiting.placed(one, 0.0)
    waiting.back_off(one, 10.0)
    assert waiting.sizes()["backoff"] == 1
    assert waiting.next_wakeup(10.0) == 12.0
    waiting.advance(11.9)
    assert waiting.pop() is None
    waiting.advance(12.0)
    assert waiting.pop() is one


def parked(waiting: SchedulingQueue, *entries: QueuedPod) -> SchedulingQueue:
    filled(waiting, *entries)
    while (one := waiting.pop()) is not None:
        waiting.failed(one, 0.0)
    return waiting


def test_one_pod_of_a_shape_scouts_and_the_next_follows_when_it_was_placed() -> None:
    waiting = parked(queue(), entry("b", 2), entry("a", 1), entry("c", 3))
    waiting.wake(entry("x").shape, 0.5, urgent=True)
    assert names(waiting.ahead(9)) == ["a"]
    scout = waiting.pop()
    assert scout is not None
    waiting.placed(scout, 0.5)
    assert names(waiting.ahead(9)) == ["b"]
    scout = waiting.pop()
    assert scout is not None
    waiting.failed(scout, 0.5)
    assert waiting.ahead(9) == []
    assert waiting.sizes()["unschedulable"] == 2


def test_freed_capacity_wakes_at_once_and_a_falling_rate_respects_the_backoff() -> None:
    waiting = parked(queue(), entry("a"))
    shape = entry("x").shape
    waiting.wake(shape, 0.5, urgent=False)
    assert waiting.sizes() == {"active": 0, "backoff": 1, "unschedulable": 0, "gated": 0}
    waiting.wake(shape, 0.6, urgent=True)
    assert waiting.sizes()["active"] == 1


def test_a_parked_pod_is_flushed_after_a_time() -> None:
    waiting = parked(queue(), entry("a"), entry("b"))
    assert waiting.next_wakeup(1.0) == 60.0
    waiting.advance(59.0)
    assert waiting.pop() is None
    waiting.advance(60.0)
    assert names(waiting.ahead(9)) == ["a"]


def test_a_pod_that_fails_twice_at_one_moment_is_still_flushed() -> None:
    waiting = filled(queue(), entry("a", 5))
    for _ in range(2):
        one = waiting.pop()
        assert one is not None
        assert waiting.next_wakeup(0.0) is None  # it is in hand, so that nothing is to be flushed
        waiting.failed(one, 0.0)
        waiting.wake(one.shape, 0.0, urgent=True)
    one = waiting.pop()
    assert one is not None
    waiting.failed(one, 0.0)
    assert waiting.next_wakeup(0.0) == 60.0
    waiting.wake(one.shape, 30.0, urgent=True)
    assert waiting.pop() is one
    waiting.failed(one, 30.0)
    assert waiting.next_wakeup(30.0) == 90.0  # put off
    waiting.advance(60.0)
    assert waiting.pop() is None


def test_when_the_scout_is_deleted_in_its_backoff_the_others_are_still_flushed() -> None:
    waiting = parked(queue(), entry("a"), entry("b"))
    waiting.wake(entry("x").shape, 0.5, urgent=False)
    waiting.remove("d/a", 0.5)
    waiting.advance(60.0)
    assert names(waiting.ahead(9)) == []
    waiting.advance(65.0)
    assert names(waiting.ahead(9)) == ["b"]


def test_when_the_scout_is_deleted_before_its_turn_the_next_has_it() -> None:
    waiting = parked(queue(), entry("a"), entry("b"))
    waiting.wake(entry("x").shape, 5.0, urgent=True)
    waiting.remove("d/a", 5.0)
    assert names(waiting.ahead(9)) == ["b"]


def two_parked() -> tuple[SchedulingQueue, QueuedPod, QueuedPod]:
    """Return a queue in which a short and a long pod of two shapes found no node."""
    short, long = entry("short", 5), entry("long", 50, shape=2)
    waiting = filled(queue(), short, long)
    for one in (short, long):
        assert waiting.pop() is one
        waiting.failed(one, 0.0)
    return waiting, short, long


def test_those_who_hope_for_the_same_room_have_their_turns_and_stay_parked_where_it_was_taken() -> None:
    waiting, short, long = two_parked()
    waiting.hope(long.shape, 2.0)
    waiting.hope(short.shape, 2.0)
    assert waiting.pop() is short
    waiting.take_up(short)
    waiting.placed(short, 2.0)
    assert waiting.pop() is long
    waiting.failed(long, 2.0)  # the room is taken
    assert (long.attempts, long.queue_state, waiting.pop()) == (2, QueueState.PARKED, None)
    waiting.end_hopes(2.0)
    assert waiting.next_wakeup(2.0) == 62.0  # its flush
    waiting.wake(long.shape, 3.0, urgent=True)
    assert waiting.pop() is long


def test_a_turn_that_did_not_come_in_its_cycle_is_kept_and_goes_to_the_next_when_the_pod_is_deleted() -> None:
    waiting, short, _ = two_parked()
    second = entry("second", 6)
    waiting.add(second, 1.0)
    assert waiting.pop() is second
    waiting.failed(second, 1.0)
    waiting.hope(short.shape, 2.0)
    waiting.end_hopes(2.0)
    assert waiting.next_wakeup(2.0) == 2.0
    waiting.remove(short.pod.key, 2.5)
    assert waiting.pop() is second


def test_who_is_woken_while_it_hopes_has_one_turn_and_not_two() -> None:
    """Another of its shape comes, finds room, and wakes it."""
    waiting, short, _ = two_parked()
    waiting.hope(short.shape, 2.0)
    first = entry("first", 1)
    waiting.add(first, 2.0)
    assert waiting.pop() is first
    waiting.placed(first, 2.0)
    assert waiting.pop() is short
    waiting.failed(short, 2.0)
    waiting.end_hopes(2.0)
    assert waiting.pop() is None


def test_gated_and_unsupported_pods_are_never_tried() -> None:
    waiting = filled(queue(), entry("gated", gates=("example.com/quota",)), entry("odd", unsupported=("spec.x",)))
    assert waiting.pop() is None
    assert waiting.sizes() == {"active": 0, "backoff": 0, "unschedulable": 1, "gated": 1}
    assert finished(waiting.order_steps(0.0)) == []


def test_a_full_queue_keeps_the_pod_aside_and_admits_it_in_turn() -> None:
    small = replace(CONFIG, max_queue=2)
    waiting = filled(queue(config=small), *(entry(f"p{number}", 9 - number) for number in range(4)))
    assert waiting.sizes() == {"active": 2, "backoff": 0, "unschedulable": 2, "gated": 0}
    assert names(finished(waiting.order_steps(0.0))) == ["p1", "p0", "p3", "p2"]
    one = waiting.pop()
    assert one is not None
    waiting.placed(one, 0.0)
    assert names(waiting.advance(0.0)) == ["p2"]
    assert waiting.sizes() == {"active": 2, "backoff": 0, "unschedulable": 1, "gated": 0}


def test_looking_ahead_takes_nothing() -> None:
    waiting = filled(queue(), *(entry(f"p{number}", number) for number in range(5)))
    assert names(waiting.ahead(3)) == ["p0", "p1", "p2"]
    assert drain(waiting) == [f"p{number}" for number in range(5)]


steps = st.lists(
    st.tuples(
        st.sampled_from(("add", "pop", "fail", "bounce", "remove", "wake", "hope", "ahead", "end", "time")),
        st.integers(0, 7),
    )
)


def give_turns(waiting: SchedulingQueue, action: str, number: int, now: float) -> None:
    if action == "wake":
        waiting.wake(entry("x", shape=1 + number % 3).shape, now, urgent=number % 2 == 0)
    elif action == "ahead":
        assert len(waiting.ahead(number)) <= number
    elif action == "end":
        waiting.end_hopes(now)
    else:
        for shape in waiting.parked_shapes():
            waiting.hope(shape, now)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_every_pod_is_in_exactly_one_place(actions: list[tuple[str, int]]) -> None:
    waiting = queue(config=replace(CONFIG, max_queue=4))
    known: dict[str, QueuedPod] = {}
    now = 0.0
    for action, number in actions:
        if action == "add":
            one = entry(f"p{number}", number, shape=1 + number % 3, gates=("g",) if number == 6 else ())
            waiting.add(one, now)
            known[one.pod.key] = one
        elif action == "remove":
            waiting.remove(f"d/p{number}", now)
            known.pop(f"d/p{number}", None)
        elif action == "time":
            now += 10.0 * number
            waiting.advance(now)
        elif action in ("wake", "hope", "ahead", "end"):
            give_turns(waiting, action, number, now)
        elif (one := waiting.pop()) is not None:
            if action == "fail":
                waiting.failed(one, now)
            else:
                if one.queue_state is QueueState.PARKED:
                    waiting.take_up(one)
                waiting.placed(one, now)
                known.pop(one.pod.key)
                if action == "bounce":
                    waiting.back_off(one, now)
                    known[one.pod.key] = one
        assert sum(waiting.sizes().values()) == len(waiting) == len(known)
    # Nobody is lost: given time and room, all that may be tried come out.
    waiting.end_hopes(now)
    for _ in range(len(known) + 1):
        now += 100.0
        waiting.advance(now)
        while (one := waiting.pop()) is not None:
            waiting.placed(one, now)
            known.pop(one.pod.key)
            waiting.advance(now)
    assert all(one.pod.gates for one in known.values())

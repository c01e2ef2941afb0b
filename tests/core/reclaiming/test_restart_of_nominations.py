"""A claim on freed space outlives the engine: nothing steals it, and nobody is evicted twice for one pod."""

from __future__ import annotations

from itertools import pairwise

import pytest
from engine_objects import node_upserted, pod
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import Event, EvictRefused, MoreToCome, Pod, PodDeleted, PodPhase, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Evict, Instruction, Wait

GRATIS, BATCH, ONLINE = WorkloadClass.GRATIS, WorkloadClass.BATCH, WorkloadClass.ONLINE
KNOBS = HierarchicalConfig(capacity_share=1.0)


def restarted(*events: Event) -> tuple[Scheduler, list[Instruction]]:
    """An engine that begins with what the API holds, and its first decisions."""
    scheduler = Scheduler(SchedulerConfig(policy="hierarchical", hierarchical=KNOBS), HeuristicCatalogue())
    return scheduler, scheduler.handle(events, 0.0)


def waits(name: str, cls: WorkloadClass, cpu: int, **fields: object) -> PodUpserted:
    return PodUpserted(pod(name, cpu, cls, **fields))


def runs(name: str, cls: WorkloadClass, cpu: int, at: str = "a", **fields: object) -> PodUpserted:
    return PodUpserted(pod(name, cpu, cls, node=at, phase=PodPhase.RUNNING, started_seconds=0.0, **fields))


def gone(name: str) -> PodDeleted:
    return PodDeleted(f"d/{name}", f"u-{name}")


def binds(out: list[Instruction]) -> dict[str, str]:
    return {one.key[2:]: one.node for one in out if isinstance(one, Bind)}


def evicted(out: list[Instruction]) -> list[str]:
    return [one.key[2:] for one in out if isinstance(one, Evict)]


def test_who_is_on_the_way_out_is_counted_on_and_nobody_else_asked() -> None:
    scheduler, out = restarted(
        node_upserted(),
        waits("x", BATCH, 400, nominated_node="a"),
        runs("g", GRATIS, 500, terminating=True),
        runs("h", GRATIS, 500),
    )
    assert evicted(out) == []
    (wait,) = [one for one in out if isinstance(one, Wait)]
    assert (wait.nominated_node, wait.victims) == ("a", ("d/g",))
    assert wait.message.endswith("preemption: 1 gratis pod leaves a for it")
    assert binds(scheduler.handle([gone("g")], 1.0)) == {"x": "a"}


def test_who_is_on_the_way_out_may_be_told_of_last() -> None:
    scheduler, out = restarted(node_upserted(), waits("x", BATCH, 400, nominated_node="a"), MoreToCome())
    assert out == []
    out = scheduler.handle([runs("g", GRATIS, 500, terminating=True), runs("h", GRATIS, 500)], 0.0)
    (wait,) = out
    assert isinstance(wait, Wait)
    assert (wait.nominated_node, wait.victims) == ("a", ("d/g",))


def test_space_that_is_free_already_goes_to_the_pod_that_it_was_freed_for() -> None:
    _, out = restarted(
        node_upserted(),
        waits("earlier", BATCH, 700, priority=5),
        waits("gratis", GRATIS, 500),
        waits("x", BATCH, 600, nominated_node="a"),
    )
    assert binds(out) == {"x": "a"}, "600 of 1000 are kept: neither 700 nor 500 fit beside"


def test_evictions_that_were_never_carried_out_are_asked_for_on_the_same_node() -> None:
    _, out = restarted(
        node_upserted("a"),
        node_upserted("b"),
        runs("gone-soon", GRATIS, 400, "a", terminating=True),
        runs("dear", GRATIS, 600, "a", deletion_cost=9),
        runs("cheap", GRATIS, 1000, "b"),
        waits("x", BATCH, 800, nominated_node="a"),
    )
    assert evicted(out) == ["dear"], "400 come from a anyway; cheap would be a second node emptied for one pod"


def test_a_claim_on_a_node_that_can_not_help_is_given_up_for_another() -> None:
    _, out = restarted(
        node_upserted("a"),
        node_upserted("b"),
        runs("web", ONLINE, 900, "a"),
        waits("x", BATCH, 600, nominated_node="a"),
    )
    assert binds(out) == {"x": "b"}
    _, out = restarted(
        node_upserted("a"),
        node_upserted("b"),
        runs("web", ONLINE, 900, "a"),
        runs("g", GRATIS, 900, "b"),
        waits("x", BATCH, 600, nominated_node="a"),
        waits("y", BATCH, 600, nominated_node="no-such-node"),
    )
    assert evicted(out) == ["g"]


@pytest.mark.parametrize("cls", [GRATIS, ONLINE])
def test_only_batch_pods_have_claims(cls: WorkloadClass) -> None:
    _, out = restarted(
        node_upserted(), waits("x", cls, 900, nominated_node="a", gates=("later",)), waits("y", BATCH, 500)
    )
    assert binds(out) == {"y": "a"}


def test_our_own_word_on_the_pod_changes_nothing_when_it_comes_back() -> None:
    scheduler, out = restarted(node_upserted(), runs("g", GRATIS, 1000), waits("x", BATCH, 400))
    assert evicted(out) == ["g"]
    assert scheduler.handle([waits("x", BATCH, 400, nominated_node="a")], 1.0) == []
    assert binds(scheduler.handle([gone("g")], 2.0)) == {"x": "a"}


def test_a_pod_whose_claim_came_to_nothing_says_so() -> None:
    scheduler, _ = restarted(node_upserted(), runs("g", GRATIS, 1000), waits("x", BATCH, 400))
    (wait,) = scheduler.handle([EvictRefused("d/g", "u-g", "a", 429, "budget")], 1.0)
    assert isinstance(wait, Wait)
    assert (wait.nominated_node, wait.victims) == ("", ())
    assert wait.message == "0/1 nodes are available: 1 Insufficient cpu"


def test_a_victim_that_stayed_for_anothers_sake_is_asked_again_at_once() -> None:
    scheduler, out = restarted(
        node_upserted(), runs("g", GRATIS, 400), runs("h", GRATIS, 300), runs("i", GRATIS, 300), waits("x", BATCH, 700)
    )
    assert evicted(out) == ["g", "h"]
    refused = EvictRefused("d/h", "u-h", "a", 429, "budget")
    spared = EvictRefused("d/g", "u-g", "a", 424, "another victim stays", retry=True)
    assert sorted(evicted(scheduler.handle([refused, spared], 1.0))) == ["g", "i"]


def test_each_further_refusal_doubles_the_wait() -> None:
    scheduler, _ = restarted(node_upserted(), runs("g", GRATIS, 1000))
    now, asked = 0.0, []
    refused: list[Event] = [waits("x", BATCH, 400)]
    while now < 1000.0:
        out = scheduler.handle(refused, now)
        refused = []
        if evicted(out):
            asked.append(now)
            refused = [EvictRefused("d/g", "u-g", "a", 429, "budget")]
        now += 1.0
    # Refused a second later, open again after 30, 60, 120, 240, 480 s; and the pod looks again each 60 s at the latest.
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert all(gap >= 30.0 * 2**turn for turn, gap in enumerate(gaps)), gaps
    assert asked == [0.0, 61.0, 122.0, 243.0, 484.0, 965.0]


class Api:
    """What the API server holds: pods, claims and deletions; it outlives each engine."""

    def __init__(self, sizes: dict[str, list[int]]) -> None:
        self.pods: dict[str, Pod] = {}
        self.late: list[str] = []
        """Evictions that the operator was told to carry out and did not get to."""
        self.evicted: list[tuple[str, str]] = []
        for name, amounts in sizes.items():
            for number, cpu in enumerate(amounts):
                self.put(pod(f"{name}{number}", cpu, GRATIS, node=name, phase=PodPhase.RUNNING, started_seconds=0.0))
        self.start()

    def put(self, one: Pod) -> None:
        self.pods[one.key] = one

    def start(self) -> None:
        """A new engine lists what is there; what the last one had in hand is lost."""
        config = SchedulerConfig(policy="hierarchical", hierarchical=KNOBS)
        self.scheduler = Scheduler(config, HeuristicCatalogue())
        self.events: list[Event] = [node_upserted("a"), node_upserted("b"), *map(PodUpserted, self.pods.values())]
        self.late = []

    def emit(self, one: Pod) -> None:
        self.put(one)
        self.events.append(PodUpserted(one))

    def remove(self, key: str) -> None:
        one = self.pods.pop(key)
        self.events.append(PodDeleted(one.key, one.uid))

    def holds(self, name: str) -> int:
        return sum(dict(one.requests)["cpu"] for one in self.pods.values() if one.node == name)

    def cycle(self, now: float) -> None:
        events, self.events = self.events, []
        for one in self.scheduler.handle(events, now):
            match one:
                case Bind():
                    self.emit(self.pods[one.key]._replace(node=one.node, phase=PodPhase.RUNNING, started_seconds=now))
                    assert self.holds(one.node) <= 1000
                case Wait():
                    self.emit(self.pods[one.key]._replace(nominated_node=one.nominated_node or None))
                case Evict():
                    self.check_needed(one)
                    self.late.append(one.key)

    def check_needed(self, one: Evict) -> None:
        going = [pod for pod in self.pods.values() if pod.node == one.node and pod.terminating]
        coming = 1000 - self.holds(one.node) + sum(dict(pod.requests)["cpu"] for pod in going)
        asked = dict(self.pods[one.nominee].requests)["cpu"]
        assert coming < asked, "nobody is evicted for a pod that gets its room anyway"
        self.evicted.append((one.node, one.key))

    def carry_out(self, count: int) -> None:
        for _ in range(min(count, len(self.late))):
            key = self.late.pop(0)
            if key in self.pods:
                self.emit(self.pods[key]._replace(terminating=True))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from((100, 200, 250, 400)), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) <= 1000),
    st.lists(st.sampled_from((100, 200, 250, 400)), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) <= 1000),
    st.integers(500, 1000),
    st.lists(
        st.one_of(
            st.just(("restart", 0)),
            st.just(("leave", 0)),
            st.tuples(st.just("carry out"), st.integers(0, 3)),
            st.tuples(st.just("gratis"), st.sampled_from((50, 300))),
        ),
        max_size=12,
    ),
)
def test_through_any_restarts_one_node_is_emptied_for_one_pod_and_no_further_than_it_needs(
    on_a: list[int], on_b: list[int], wanted: int, steps: list[tuple[str, int]]
) -> None:
    # The nodes are full with gratis work up to what is drawn, so that x must make room or finds it free.
    api = Api({"a": [*on_a, 1000 - sum(on_a)], "b": [*on_b, 1000 - sum(on_b)]})
    api.emit(pod("x", wanted, BATCH))
    api.cycle(0.0)
    now = 0.0
    for number, (step, amount) in enumerate(steps):
        now += 1.0
        if step == "restart":
            api.start()
        elif step == "carry out":
            api.carry_out(amount)
        elif step == "gratis":
            api.emit(pod(f"late{number}", amount, GRATIS))
        else:
            for key in [one.key for one in api.pods.values() if one.terminating][:1]:
                api.remove(key)
        api.cycle(now)
    for _ in range(12):  # then all that was decided is carried out
        now += 1.0
        api.carry_out(9)
        for key in [one.key for one in api.pods.values() if one.terminating]:
            api.remove(key)
        api.cycle(now)
    assert api.pods["d/x"].node is not None, "it gets its room in the end"
    assert {name for name, _ in api.evicted} == {api.pods["d/x"].node}, "and it is the room that was made for it"

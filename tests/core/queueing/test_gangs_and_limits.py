"""A gang that can never start as a whole keeps nobody of its namespace waiting for the namespace's limit."""

from __future__ import annotations

import pytest
from engine_objects import node_upserted, pod_upserted
from live_cluster import node

from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Event, Gang, Namespace, NamespaceUpserted, PodDeleted, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Instruction, Wait, WaitReason

PLANNING = ("easy", "conservative", "sjf", "svf", "slack", "hybrid", "sjf-lw", "random-random", "hybrid-machines")
WITHOUT_A_PLAN = ("fifo", "qpsm", "predictive")
CAP = "cotide.dev/max-batch-cpu"


def gang_of(name: str, count: int, cpu: int = 1000, minimum: int = 0) -> list[PodUpserted]:
    rule = Gang(f"a/{name}", minimum or count, 60.0)
    return [pod_upserted(f"a/{name}-{index}", cpu, gang=rule) for index in range(count)]


class Cluster:
    """One node of eight cores, and a namespace ``a`` with a limit."""

    def __init__(self, policy: str, millicores: int) -> None:
        self.scheduler = Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())
        self.waits: dict[str, Wait] = {}
        self.handle(0.0, node("n", 8000), NamespaceUpserted(Namespace("a", batch_millicores=millicores)))

    def handle(self, now: float, *events: Event) -> list[str]:
        """Return who is bound until nothing is left to do at this time."""
        out: list[Instruction] = list(self.scheduler.handle(events, now))
        rounds = 0
        while (again := self.scheduler.next_wakeup(now)) is not None and again <= now:
            out += self.scheduler.handle([], now)
            rounds += 1
            assert rounds < 50, "it goes on for ever at one moment"
        self.waits.update({one.key: one for one in out if isinstance(one, Wait)})
        return sorted(one.key for one in out if isinstance(one, Bind))


def gone(key: str) -> PodDeleted:
    return PodDeleted(key, f"u-{key}")


@pytest.mark.parametrize("policy", PLANNING)
def test_a_gang_that_no_cluster_of_this_size_holds_keeps_no_other_of_its_namespace_waiting(policy: str) -> None:
    cluster = Cluster(policy, 10_000)
    assert cluster.handle(0.0, *gang_of("wide", 10)) == []
    assert cluster.handle(1.0, pod_upserted("a/small")) == ["a/small"]
    # Nobody of the gang starts with what is left, and it starts when there is room for all of it.
    assert cluster.handle(2.0, gone("a/small")) == []
    assert len(cluster.handle(3.0, node_upserted("m", 8000))) == 10


@pytest.mark.parametrize("policy", PLANNING)
def test_a_gang_that_can_run_when_others_end_keeps_its_turn_before_those_behind_it(policy: str) -> None:
    cluster = Cluster(policy, 8000)
    cluster.handle(0.0, pod_upserted("b/0", 4000, requested_seconds=100.0))
    assert cluster.handle(1.0, *gang_of("wide", 8)) == []
    assert cluster.handle(2.0, pod_upserted("a/small", requested_seconds=1e6)) == []
    assert cluster.waits["a/small"].cap == CAP
    assert cluster.handle(3.0, gone("b/0")) == [f"a/wide-{index}" for index in range(8)]


@pytest.mark.parametrize("policy", PLANNING)
def test_a_pod_beyond_the_minimum_of_a_gang_that_no_node_takes_keeps_nobody_waiting(policy: str) -> None:
    cluster = Cluster(policy, 3000)
    two = gang_of("g", 2, minimum=2)
    picky = pod_upserted("a/g-2", gang=Gang("a/g", 2, 60.0), node_selector=(("disk", "ssd"),))
    assert cluster.handle(0.0, *two) == ["a/g-0", "a/g-1"]
    assert cluster.handle(1.0, picky) == []
    assert cluster.handle(2.0, pod_upserted("a/small")) == ["a/small"]


@pytest.mark.parametrize("policy", [*WITHOUT_A_PLAN, *PLANNING])
@pytest.mark.parametrize("together", [True, False])
def test_a_gang_above_its_namespace_limit_keeps_no_other_of_it_waiting(policy: str, together: bool) -> None:
    """Each pod of it alone would be within the limit, so that it is let in again and again."""
    cluster = Cluster(policy, 3000)
    assert cluster.handle(0.0, pod_upserted("a/0", 3000)) == ["a/0"]
    pods = gang_of("wide", 2, 3000)
    for events in [pods] if together else [[pod] for pod in pods]:
        assert cluster.handle(1.0, *events) == []
    assert cluster.handle(2.0, pod_upserted("a/small")) == []
    assert cluster.handle(3.0, gone("a/0")) == ["a/small"]
    assert cluster.handle(4.0, pod_upserted("a/1", 2000)) == ["a/1"]
    assert cluster.handle(5.0, gone("a/small"), gone("a/1")) == []
    assert cluster.handle(6.0, NamespaceUpserted(Namespace("a", batch_millicores=6000))) == ["a/wide-0", "a/wide-1"]


@pytest.mark.parametrize("policy", [*WITHOUT_A_PLAN, *PLANNING])
def test_a_gang_above_its_namespace_limit_is_told_what_it_asks_for_as_a_whole(policy: str) -> None:
    cluster = Cluster(policy, 3000)
    cluster.handle(0.0, *gang_of("wide", 2, 2000))
    (wait,) = [one for one in cluster.waits.values() if one.cap]
    assert (wait.reason, wait.cap) == (WaitReason.WAITING_FOR_TURN, CAP)
    assert wait.message == (
        "gang a/wide: 1 of 2 can start: its namespace may hold 3 cpu in batch and gratis pods"
        " (cotide.dev/max-batch-cpu), and the 2 that start together ask for 4"
    )


@pytest.mark.parametrize("policy", [*WITHOUT_A_PLAN, *PLANNING])
def test_a_gang_that_needs_fewer_than_it_did_tries_again(policy: str) -> None:
    cluster = Cluster(policy, 3000)
    assert cluster.handle(0.0, *gang_of("g", 2, 2000)) == []
    fewer = [PodUpserted(one.pod._replace(gang=Gang("a/g", 1, 60.0))) for one in gang_of("g", 2, 2000)]
    assert len(cluster.handle(1.0, *fewer)) == 1


@pytest.mark.parametrize("policy", [*WITHOUT_A_PLAN, *PLANNING])
def test_a_gang_starts_when_enough_of_its_namespace_has_ended(policy: str) -> None:
    cluster = Cluster(policy, 4000)
    assert cluster.handle(0.0, *[pod_upserted(f"a/{index}") for index in range(4)]) == [f"a/{n}" for n in range(4)]
    assert cluster.handle(1.0, *gang_of("g", 3)) == []
    assert cluster.handle(2.0, gone("a/0")) == []
    assert cluster.handle(3.0, gone("a/1")) == []
    assert cluster.handle(4.0, gone("a/2")) == ["a/g-0", "a/g-1", "a/g-2"]

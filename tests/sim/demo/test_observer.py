"""What the demo makes of what it sees: loads of nodes, overload slots, pods that take another's place."""

from __future__ import annotations

import pytest
from manifests import pod_object

from cotide_kube.objects import PodObject
from cotide_kube.reflector import Change
from cotide_operator.cache.decision_store import Decision
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, encode
from cotide_sim.cluster.scorecard import Scorecard
from cotide_sim.demo.facts import RunFacts
from cotide_sim.demo.observer import Observer

GIB = 1 << 30


class StoppedClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.speed = 1.0

    def now(self) -> float:
        return self.seconds


def observer(clock: StoppedClock, card: Scorecard) -> tuple[Observer, RunFacts]:
    facts = RunFacts("hierarchical", 0.0, 900.0)
    seen = Observer(
        None,  # type: ignore[arg-type]  # nothing is asked of a server here
        "http://nowhere.invalid",
        clock,  # type: ignore[arg-type]  # what it needs of a clock
        facts,
        card,
        arrivals={"sort": 10.0},
        completions={"sort": 1},
        limits={"web": 2.0},
        node_millicores=8000,
        node_memory_bytes=32 * GIB,
    )
    return seen, facts


def pod(
    name: str, cls: str, owner: str, requests: dict[str, str], node: str | None = "n1", phase: str | None = None
) -> Change[PodObject]:
    """The watch's news of a pod that a Job or a Workload owns."""
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}
    spec |= {"nodeName": node} if node is not None else {}
    labels = {f"cotide.dev/{'workload' if cls == 'online' else 'job'}": owner}
    status = {"phase": phase or ("Pending" if node is None else "Running")}
    made = pod_object(name, cls=cls, labels=labels, namespace="demo", uid=name, spec=spec, status=status)
    return Change("ADDED", made)


def page(millicores: float) -> str:
    return (
        '# TYPE cotide_sim_node_cpu_usage_millicores gauge\ncotide_sim_node_cpu_usage_millicores{node="n1"} 4000\n'
        f'cotide_sim_pod_cpu_usage_millicores{{namespace="demo",pod="web-0",node="n1"}} {millicores}\n'
        'cotide_sim_pod_cpu_usage_millicores{namespace="demo",pod="sort-0",node="n1"} 6000\n'
        f'cotide_sim_pod_memory_usage_bytes{{namespace="demo",pod="web-0",node="n1"}} {GIB}\n'
    )


def test_a_node_bears_the_use_of_online_pods_and_the_allocation_of_others() -> None:
    clock, card = StoppedClock(), Scorecard(slot_seconds=25.0)
    seen, facts = observer(clock, card)
    seen._take(pod("web-0", "online", "web", {"cpu": "2", "memory": "2Gi"}))
    seen._take(pod("sort-0", "batch", "sort", {"cotide.dev/reclaimed-cpu": "6000", "cotide.dev/reclaimed-memory": "1"}))
    # 1900 of its 2000 m beside 6000 allocated fit into 8000 m; 2100 do not.
    seen.sample(page(1900.0), 30.0)
    assert (facts.node_load_share, facts.overload_slots) == ({"n1": 7900 / 8000}, 0)
    seen.sample(page(2100.0), 60.0)
    seen.sample(page(2100.0), 65.0)
    assert facts.overload_slots == card.summary(100.0)["overload_slots"] == 1


def test_a_pod_in_the_place_of_an_evicted_one_waits_from_when_it_appears() -> None:
    # The first came at 10 and was seen bound at 30; the second appears at 50 and never starts: 20 + 50 by 100.
    clock, card = StoppedClock(), Scorecard()
    seen, _ = observer(clock, card)
    clock.seconds = 30.0
    seen._take(pod("sort-0", "batch", "sort", {}))
    clock.seconds = 50.0
    seen._take(pod("sort-1", "batch", "sort", {}, node=None))
    assert card.summary(100.0)["waiting_seconds_total"] == 20.0 + 50.0


def test_what_the_machine_adds_to_the_waiting_is_counted_apart() -> None:
    """Planned for 10 s, made at 14 s (4 s late), bound at 20 s (the policy's affair), running at 23 s (3 s late)."""
    clock = StoppedClock()
    seen, facts = observer(clock, Scorecard())
    change = pod("sort-0", "batch", "sort", {"cpu": "1"}, node=None)
    clock.seconds = 14.0
    seen._take(change)
    clock.seconds = 20.0
    seen._take(pod("sort-0", "batch", "sort", {"cpu": "1"}, phase="Pending"))
    clock.seconds = 23.0
    seen._take(pod("sort-0", "batch", "sort", {"cpu": "1"}))
    seen.count_unseen(900.0)
    assert facts.late_seconds == 4.0 + 3.0


def test_a_job_whose_pods_were_never_made_was_late_to_the_end() -> None:
    """Planned for 10 s of a run of 100 s."""
    seen, facts = observer(StoppedClock(), Scorecard())
    seen.count_unseen(100.0)
    assert facts.late_seconds == 90.0


def decided(text: str, scheduler: str) -> Change[PodObject]:
    """The watch's news of a pod that carries a note of a decision, of whichever scheduler's."""
    spec = {"schedulerName": scheduler, "nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    notes = {DECISION_ANNOTATION: text}
    made = pod_object("sort-0", cls="batch", namespace="demo", uid="sort-0", spec=spec, annotations=notes)
    return Change("MODIFIED", made)


@pytest.mark.parametrize("scheduler", ["cotide", "cotide-assisted"])
def test_a_decision_is_shown_once_whether_we_bound_the_pod_or_kube_scheduler_asked_us(scheduler: str) -> None:
    clock = StoppedClock()
    seen, facts = observer(clock, Scorecard())
    first = encode(Decision("demo/sort-0", "sort-0", 1.0, None, "QosAtRisk", "0/40 nodes are available"))
    then = encode(Decision("demo/sort-0", "sort-0", 5.0, "n1", "Scheduled", "kube-scheduler put it on n1"))
    for clock.seconds, text in ((1.0, first), (2.0, first), (3.0, "no decision"), (5.0, then)):
        seen._take(decided(text, scheduler))
    assert [(decision.at_seconds, decision.node, decision.text) for decision in facts.decisions] == [
        (1.0, None, "0/40 nodes are available"),
        (5.0, "n1", "n1: kube-scheduler put it on n1"),
    ]

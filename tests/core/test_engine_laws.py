"""Laws of the whole engine under a hostile driver: nothing bound twice, overfilled or lost, and all of it replays."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    BindRefused,
    Event,
    Node,
    NodeDeleted,
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
from cotide_core.policies import POLICIES
from cotide_core.recording.ledger import LedgerWriter
from cotide_lab.commands.ledger_replay import replay

CPU, SLOTS = 2000, 5
ANSWERS = ("confirm", "confirm", "refuse", "gone", "silence", "late")


class HostileCluster:
    """Plays API server and kubelets: answers binds as it is told to, and checks each against the truth."""

    def __init__(self, policy: str) -> None:
        self.config = SchedulerConfig(policy=policy, seed=1, max_decisions_per_cycle=3, assume_timeout_seconds=25)
        self.scheduler = Scheduler(self.config, HeuristicCatalogue())
        self.writer = LedgerWriter(self.config)
        self.lines = [self.writer.header()]
        self.now = 0.0
        self.pods: dict[str, Pod] = {}
        self.nodes: set[str] = set()
        self.events: list[Event] = [WorkloadUpserted(Workload("d/web"))]
        self.open: dict[str, tuple[Bind, float]] = {}
        """Binds that were not answered; the engine may forget them after the timeout."""
        self.late: list[Event] = []
        self.preferences: dict[str, int] = {}
        """Resizes in flight, by pod."""
        self.count = 0

    def submit(self, online: bool, cpu: int) -> None:
        self.count += 1
        cls = WorkloadClass.ONLINE if online else (WorkloadClass.BATCH, WorkloadClass.GRATIS)[self.count % 2]
        workload = "d/web" if online else None
        pod = Pod(f"d/{self.count}", f"u{self.count}", cls, (("cpu", cpu),), self.now, ours=True, workload=workload)
        self.emit(pod)

    def emit(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        self.events.append(PodUpserted(pod))

    def add_node(self, number: int) -> None:
        self.nodes.add(f"n{number}")
        self.events.append(NodeUpserted(Node(f"n{number}", (("cpu", CPU), ("pods", SLOTS)))))

    def remove_node(self, number: int) -> None:
        name = f"n{number}"
        if name in self.nodes:
            self.nodes.discard(name)
            self.events.append(NodeDeleted(name))
            for pod in [one for one in self.pods.values() if one.node == name]:
                self.delete(pod)

    def delete(self, pod: Pod) -> None:
        del self.pods[pod.key]
        self.open.pop(pod.key, None)
        self.events.append(PodDeleted(pod.key, pod.uid))

    def finish_one(self, number: int) -> None:
        running = [pod for pod in self.pods.values() if pod.node is not None and pod.phase is PodPhase.RUNNING]
        if running:
            self.emit(running[number % len(running)]._replace(phase=PodPhase.SUCCEEDED))

    def resize_one(self, number: int, cpu: int) -> None:
        """A running pod asks for another size: until its kubelet has set it, it counts with the larger of both."""
        late = {event.pod.key for event in self.late if isinstance(event, PodUpserted)}
        running = [pod for pod in self.pods.values() if pod.phase is PodPhase.RUNNING and pod.key not in late]
        if running:
            pod = running[number % len(running)]
            self.preferences[pod.key] = cpu
            self.emit(pod._replace(requests=(("cpu", max(cpu, dict(pod.requests)["cpu"])),)))

    def set_one(self, number: int) -> None:
        """A kubelet sets a resize where its node has room, or puts it off."""
        wished = [
            self.pods[key] for key in self.preferences if key in self.pods and self.pods[key].phase is PodPhase.RUNNING
        ]
        if wished:
            pod = wished[number % len(wished)]
            self.emit(pod._replace(requests=(("cpu", self.preferences.pop(pod.key)),)))

    def cycle(self, answer: str, seconds: float) -> None:
        self.now += seconds
        events, self.events = [*self.events, *self.late], []
        self.late = []
        out = self.scheduler.handle(events, self.now)
        self.lines.append(self.writer.entry(self.now, events, out))
        timeout = self.config.assume_timeout_seconds
        self.open = {key: (bind, at) for key, (bind, at) in self.open.items() if at + timeout > self.now}
        for bind in out:
            if isinstance(bind, Bind):
                self.check(bind)
                self.open[bind.key] = (bind, self.now)
                self.answer(bind, answer)

    def check(self, bind: Bind) -> None:
        pod = self.pods[bind.key]
        assert pod.node is None, "never bound twice"
        assert bind.key not in self.open, "never bound while an earlier bind may still succeed"
        assert bind.node in self.nodes, "never bound to a node that is gone"
        on_node = [one for one in self.pods.values() if one.node == bind.node and one.phase is PodPhase.RUNNING]
        on_node += [self.pods[key] for key, (other, _) in self.open.items() if other.node == bind.node]
        assert sum(dict(one.requests)["cpu"] for one in [*on_node, pod]) <= CPU, "never overfilled"
        assert len(on_node) + 1 <= SLOTS

    def answer(self, bind: Bind, answer: str) -> None:
        pod = self.pods[bind.key]
        if answer == "silence":
            return
        del self.open[bind.key]
        if answer in ("confirm", "late"):
            bound = pod._replace(node=bind.node, phase=PodPhase.RUNNING)
            self.pods[bind.key] = bound
            (self.late if answer == "late" else self.events).append(PodUpserted(bound))
        elif answer == "refuse":
            self.events.append(BindRefused(bind.key, bind.uid, bind.node, 500, "boom", True))
        else:
            self.events.append(BindRefused(bind.key, bind.uid, bind.node, 404, "gone", False))
            self.delete(pod)


moves = st.one_of(
    st.tuples(st.just("submit"), st.booleans(), st.sampled_from((300, 900, 1500))),
    st.tuples(st.just("submit"), st.just(False), st.sampled_from((300, 900))),
    st.tuples(st.just("node"), st.integers(0, 2)),
    st.tuples(st.just("lose"), st.integers(0, 2)),
    st.tuples(st.just("finish"), st.integers(0, 9)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("resize"), st.integers(0, 9), st.sampled_from((100, 900, 1900))),
    st.tuples(st.just("set"), st.integers(0, 9)),
    st.tuples(st.just("rate"), st.integers(0, 9), st.sampled_from((10.0, 20_000.0, 200_000.0))),
    st.tuples(st.just("cycle"), st.sampled_from(ANSWERS), st.sampled_from((0.0, 0.4, 3.0, 30.0))),
    st.tuples(st.just("cycle"), st.sampled_from(ANSWERS), st.sampled_from((0.0, 0.4, 3.0, 30.0))),
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(POLICIES)), st.lists(moves, max_size=50))
def test_nothing_is_bound_twice_overfilled_or_lost_and_the_ledger_replays(
    policy: str, steps: list[tuple[object, ...]]
) -> None:
    cluster = HostileCluster(policy)
    for step in steps:
        match step:
            case ("submit", bool(online), int(cpu)):
                cluster.submit(online, cpu)
            case ("node", int(number)):
                cluster.add_node(number)
            case ("lose", int(number)):
                cluster.remove_node(number)
            case ("finish", int(number)):
                cluster.finish_one(number)
            case ("resize", int(number), int(cpu)):
                cluster.resize_one(number, cpu)
            case ("set", int(number)):
                cluster.set_one(number)
            case ("delete", int(number)) if cluster.pods:
                cluster.delete(list(cluster.pods.values())[number % len(cluster.pods)])
            case ("rate", int(number), float(rate)):
                cluster.events.append(ServiceSampled(f"d/{number}", rate))
            case ("cycle", str(answer), float(seconds)):
                cluster.cycle(answer, seconds)
    settle(cluster)
    assert all(pod.node is not None for pod in cluster.pods.values()), "nobody is lost"
    assert sum(cluster.scheduler.pending().values()) == 0
    result = replay(cluster.lines, HeuristicCatalogue())
    assert result.difference is None
    assert result.cycles == len(cluster.lines) - 1


def settle(cluster: HostileCluster) -> None:
    """Give room and time; follow the engine's own wake-ups, so that a missing one shows as a pod left over."""
    for number in range(10, 10 + cluster.count):
        cluster.add_node(number)
    cluster.cycle("confirm", 0.0)
    for _ in range(40 + 4 * cluster.count):
        wakeup = cluster.scheduler.next_wakeup(cluster.now)
        if wakeup is None and not cluster.events:
            return
        cluster.cycle("confirm", 0.0 if wakeup is None or cluster.events else wakeup - cluster.now)

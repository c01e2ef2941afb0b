"""Live host load around a real engine, on a clock and a source that the test turns; builders of its pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hand_clock import HandClock

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    Node,
    NodeForecasted,
    NodeUpserted,
    NodeUsageSampled,
    Pod,
    PodDeleted,
    PodPhase,
    PodUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Evict
from cotide_operator.host_load.history_replay import HistoryReplay
from cotide_operator.host_load.live import Knobs, LiveHostLoad
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed.node_outlook import NodeOutlook, Outlooks
from cotide_operator.usage.sources import CPU, MEMORY, UsageReading

MILLICORES = 4000
GIB = 2**30
PHYSICAL = {"cpu": MILLICORES, "memory": 16 * GIB}
SLOT = 300.0
STALE = 60.0
EPOCH = 3_000_000.0  # begins a slot
INTO_SLOT = 40.0
SHARE = 0.95


@dataclass
class HandLoop:
    """Has the engine handle what was told when somebody waits for it."""

    clock: HandClock
    scheduler: Scheduler
    published: list[Event] = field(default_factory=list)
    inbox: list[Event] = field(default_factory=list)
    evictions: list[Evict] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.published.append(event)
        self.inbox.append(event)

    async def caught_up(self) -> None:
        inbox, self.inbox = self.inbox, []
        out = self.scheduler.handle(inbox, self.clock.now())
        self.evictions += [one for one in out if isinstance(one, Evict)]


class Scene:
    def __init__(self, *, speed: float = 1.0, tells_scores: bool = False, settling: float = 0.0) -> None:
        self.clock = HandClock(EPOCH + INTO_SLOT / speed, speed, origin=EPOCH)
        self.metrics, self.outlooks = Metrics(), Outlooks()
        self.put: list[NodeOutlook] = []
        self.outlooks.subscribe(self.put.extend)
        stale = STALE * max(1.0, speed)
        config = SchedulerConfig(
            policy="hierarchical",
            hierarchical=HierarchicalConfig(capacity_share=SHARE, usage_stale_seconds=stale),
        )
        self.loop = HandLoop(self.clock, Scheduler(config, HeuristicCatalogue()))
        self.state = self.loop.scheduler.state
        self.pods: dict[str, Pod] = {}
        self.knobs = Knobs(SLOT, 0.9, stale, STALE, 5.0, SHARE, settling, tells_scores)
        self.live = self.make()

    def make(self, rebuilding: HistoryReplay | None = None) -> LiveHostLoad:
        return LiveHostLoad(
            self.knobs, state=self.state, pods=self.pods, clock=self.clock, loop=self.loop, metrics=self.metrics,
            outlooks=self.outlooks, rebuilding=rebuilding, wall=lambda: self.clock.wall,
        )  # fmt: skip

    async def happens(self, *events: Event) -> None:
        self.loop.inbox += events
        await self.loop.caught_up()

    async def nodes(self, *names: str, **amounts: int) -> None:
        physical = tuple(sorted((PHYSICAL | amounts | {"pods": 110}).items()))
        await self.happens(*(NodeUpserted(Node(name, physical)) for name in names))

    async def place(self, *pods: Pod) -> None:
        self.pods.update({pod.key: pod for pod in pods})
        await self.happens(*map(PodUpserted, pods))

    async def remove(self, pod: Pod) -> None:
        del self.pods[pod.key]
        await self.happens(PodDeleted(pod.key, pod.uid))

    async def read(self, *readings: UsageReading) -> list[Event]:
        """Take in one reading of the source; return what was told of it."""
        self.loop.published.clear()
        await self.live.take(list(readings))
        return list(self.loop.published)

    async def slot(self, *readings: UsageReading) -> list[Event]:
        """Read at the present place of the slot, go to the same place of the next; return what the end told."""
        await self.read(*readings)
        self.passes(SLOT / self.clock.speed)
        self.loop.published.clear()
        assert await self.live.end_slots()
        return list(self.loop.published)

    def passes(self, wall_seconds: float) -> None:
        self.clock.wall += wall_seconds

    def use(
        self, pod: str, millicores: float | None, memory: float | None = GIB, age: float = 0.0
    ) -> list[UsageReading]:
        wall = self.clock.wall - age
        return [UsageReading(f"ns/{pod}", CPU, millicores, wall), UsageReading(f"ns/{pod}", MEMORY, memory, wall)]

    def count(self, name: str, outcome: str) -> float:
        return self.metrics.registry.get_sample_value(f"cotide_{name}_total", {"outcome": outcome}) or 0.0

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"cotide_{name}", labels)

    def outlook(self, node: str = "a") -> NodeOutlook:
        found = self.outlooks.get(node)
        assert found is not None
        return found


def online(name: str, node: str = "a", millicores: int = 1000, memory: int = 2 * GIB) -> Pod:
    requests = (("cpu", millicores), ("memory", memory))
    return Pod(f"ns/{name}", f"u-{name}", WorkloadClass.ONLINE, requests, 0.0, node=node, phase=PodPhase.RUNNING)


def batch(name: str, millicores: int = 500, node: str = "a") -> Pod:
    requests = (("cotide.dev/reclaimed-cpu", millicores), ("cotide.dev/reclaimed-memory", GIB))
    return Pod(f"ns/{name}", f"u-{name}", WorkloadClass.BATCH, requests, 0.0, node=node, phase=PodPhase.RUNNING)


def samples(published: Iterable[Event]) -> list[tuple[str, float, float]]:
    return [
        (one.node, one.online_millicores, one.online_memory_bytes)
        for one in published
        if isinstance(one, NodeUsageSampled)
    ]


def forecasts(published: Iterable[Event]) -> dict[str, NodeForecasted]:
    return {one.node: one for one in published if isinstance(one, NodeForecasted)}


async def one_node(*pods: Pod, **options: object) -> Scene:
    scene = Scene(**options)
    await scene.nodes("a")
    await scene.place(*pods)
    return scene


async def play(scene: Scene, loads: Iterable[float]) -> list[dict[str, NodeForecasted]]:
    return [forecasts(await scene.slot(*scene.use("web", load))) for load in loads]

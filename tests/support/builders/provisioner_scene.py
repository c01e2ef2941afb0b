"""A provisioner among plain parts: nodes of four cores, pods of one, a clock that stands until a test moves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
from engine_objects import node_upserted, running_pod
from hand_clock import HandClock
from manifests import node_manifest, pod_object

from cotide_core.classes import WorkloadClass
from cotide_core.consolidation.removal.watching import Mark, Standing
from cotide_core.events import Pod
from cotide_core.provisioning.node_orders import Action, Answer, NodeInstruction, OrderBook
from cotide_core.state.cluster_state import ClusterState
from cotide_kube.objects import NodeObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.provisioning.controller import Provisioner, ProvisioningDependencies
from cotide_operator.provisioning.ordering import Ordering

LABEL = "node.kubernetes.io/instance-type"
ORIGIN = 1_000_000_000.0
CAME = "2001-09-09T01:46:40Z"


@dataclass
class Frees:
    """Consolidation, as capacity sees it."""

    marks: dict[str, Mark] = field(default_factory=dict)
    since: float = ORIGIN
    did: list[tuple[str, str]] = field(default_factory=list)

    def standings(self) -> dict[str, Standing]:
        return {name: Standing(mark, since=self.since) for name, mark in self.marks.items()}

    async def hand_over(self, node: str) -> bool:
        self.did.append(("hand over", node))
        return True

    async def give_back(self, node: str, why: str) -> None:
        self.did.append(("give back", node))


class Scene:
    """Nodes of four cores and online pods of one; the operator's parts are as plain as can be."""

    def __init__(self, mode: str = "act", section: dict[str, Any] | None = None, **more: Any) -> None:
        self.clock, self.cache, self.pods = HandClock(ORIGIN + 100.0), ObjectCache(), dict[str, Pod]()
        self.state, self.frees, self.metrics = ClusterState(), Frees(), Metrics()
        self.asked: list[NodeInstruction] = []
        self.listed: list[dict[str, Any]] = []
        self.instructions: list[str] = []
        self.opened: list[str] = []
        self.annotations: dict[str, str] = {}
        self.book, self.answer = OrderBook(), Answer.ACCEPTED
        actuator = {} if mode == "advice" else {"actuator": {"command": ["x"], "askAgainSeconds": 1}}
        machine = {"name": "a", "cpu": "4", "memory": "64Gi", "count": 9, "bootSeconds": 60, "minimumUpSeconds": 0}
        self.settings = ProvisioningSettings.model_validate(
            {"mode": mode, "machineTypes": [{**machine, **more}], **actuator, **(section or {})}
        )
        scene: Any = self
        around = ProvisioningDependencies(
            client=scene,
            cache=self.cache,
            clock=self.clock,
            recorder=scene,
            metrics=self.metrics,
            engine=lambda: SimpleNamespace(state=self.state),  # type: ignore[arg-type,return-value]  # all that is read
            pods=self.pods,
            note=lambda line: self.instructions.append(str(line.get("did"))),
            namespace="cotide-system",
            drains=lambda: self.frees,
            official=lambda: None,
        )
        self.fence: Callable[[], None] | None = None
        self.provisioner = Provisioner(around, self.settings)
        if mode != "advice":
            permit = self.provisioner._permit
            self.provisioner._ordering = Ordering(scene, scene, self.settings, self.provisioner._ordered, permit=permit)

    # The client, the recorder, the store and the actuator.

    async def list(self, path: str, params: Any) -> list[dict[str, Any]]:
        if path == "/api/v1/nodes":
            name = params["fieldSelector"].removeprefix("metadata.name=")
            spec = {"unschedulable": name in self.frees.marks and name not in self.opened}
            return [{"metadata": {"name": name, "annotations": self.annotations}, "spec": spec}]
        return self.listed

    async def patch(self, path: str, body: Any) -> None:
        self.opened.append(path.rpartition("/")[2])

    def node(self, *said: Any) -> None: ...

    def node_order(self, *said: Any) -> None: ...

    async def load(self) -> OrderBook:
        return self.book

    async def save(self, book: OrderBook) -> None:
        self.book = book

    async def do(self, instruction: NodeInstruction) -> Answer:
        self.asked.append(instruction)
        return self.answer

    def has(self, *names: str, **marks: Mark) -> None:
        """Put nodes there, those with a mark cordoned."""
        self.frees.marks |= marks
        for name in (*names, *marks):
            made = node_manifest(name, "4", memory="64Gi")
            made["metadata"] |= {"labels": {LABEL: "a"}, "creationTimestamp": CAME, "uid": f"uid-of-{name}"}
            made["spec"] = {"unschedulable": True} if name in marks else {}
            self.cache.apply("nodes", "ADDED", msgspec.convert(made, NodeObject))
            self.state.apply(node_upserted(name, 4000))

    def runs(self, count: int, on: str = "n") -> None:
        """Put online pods of one core on a node."""
        for number in range(count):
            pod = running_pod(f"{on}-{number}", on, cls=WorkloadClass.ONLINE, started_seconds=ORIGIN)
            self.pods[pod.key] = pod
            self.cache.apply("pods", "ADDED", pod_object(f"{on}-{number}", namespace="d"))

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.provisioner.look()
            if self.provisioner._planning is not None:
                await self.provisioner._planning
            self.clock.wall += self.settings.interval_seconds

    def asks(self) -> list[tuple[Action, str]]:
        return [one[:2] for one in self.asked]

    def wanted(self, why: str) -> float:
        return self.metrics.provisioning_wanted.labels("a", why)._value.get()

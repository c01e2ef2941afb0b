"""The operations of scheduler_perf's workloads, done on a real API server before one scheduler.

Used by `upstream_perf`. An operation that collects metrics may find the scheduler stopped (SIGSTOP) while its pods are
made: two cores make pods more slowly than either scheduler binds them, and that rate is not what is measured.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from perf_cluster import delete, make_namespace, make_node, make_volume, named, path, spread
from perf_pods import Key, PodSight, PodWatch
from perf_workloads import Workload, render
from processes import Process
from race_watcher import cpu_seconds

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient

STALL_SECONDS: Final = 75.0
"""Chosen: pods that a scheduler holds back are looked at each minute by kube-scheduler."""
LIMIT_SECONDS: Final = 240.0
SETTLE_SECONDS: Final = 1.0
"""Before a stopped scheduler goes on: the server's watches are quiet then."""
UPDATES_PER_SECOND: Final = 1000
Json = dict[str, Any]


@dataclass(slots=True)
class Measured:
    """What one scheduler did with one workload.

    Attributes
    ----------
    pods : that were measured. late : seconds from the start of the measurement to each binding.
    cpu_seconds : of the scheduler, from before its first measured pod to the last binding.
    refusals : of measured pods that are not bound, and how many.
    unbound : pods of other operations that were to be bound and are not.
    faults : of operations that go on beside.
    """

    pods: set[Key] = field(default_factory=set)
    late: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    unbound: int = 0
    faults: list[str] = field(default_factory=list)


class Operations:
    """One workload before one scheduler; `run` returns what was measured."""

    def __init__(
        self, client: KubeClient, watch: PodWatch, workload: Workload, process: Process, *, freeze: bool
    ) -> None:
        self._client, self._watch, self._workload, self._process = client, watch, workload, process
        self._freeze = freeze
        self._made: set[Key] = set()
        self._namespaces: set[str] = set()
        self._beside: list[asyncio.Task[None]] = []
        self._collecting: tuple[float, float, Json] | None = None
        self._measured = Measured()

    async def run(self) -> Measured:
        """Do all operations in order."""
        known: dict[str, Callable[[Json, int], Awaitable[None]]] = {
            "createNodes": self._create_nodes,
            "createNamespaces": self._create_namespaces,
            "createAny": self._create_any,
            "createPodSets": self._create_pod_sets,
            "createPods": self._create_pods,
            "barrier": self._barrier,
            "churn": self._churn,
            "deletePods": self._delete_pods,
            "updateAny": self._update_any,
            "startCollectingMetrics": self._start_collecting,
            "stopCollectingMetrics": self._stop_collecting,
        }
        try:
            for number, operation in enumerate(self._workload.operations):
                await known[operation["opcode"]](operation, number)
        finally:
            for task in self._beside:
                task.cancel()
            ended = await asyncio.gather(*self._beside, return_exceptions=True)
        self._measured.faults += [str(one) for one in ended if isinstance(one, Exception)]
        return self._measured

    def _body(self, template: str, index: int, count: int) -> Json:
        return render(self._workload.template(template).read_text(encoding="utf-8"), index, count)

    async def _namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        if name not in self._namespaces:
            self._namespaces.add(name)
            await make_namespace(self._client, name, labels or {})

    async def _create_nodes(self, operation: Json, _: int) -> None:
        count = self._workload.count(operation)
        labelled, strategy = operation.get("labelNodePrepareStrategy"), operation.get("nodeAllocatableStrategy")

        async def make(index: int) -> None:
            node = self._body(operation.get("nodeTemplatePath") or "../templates/node-default.yaml", index, count)
            if labelled is not None:
                values = labelled["labelValues"]
                node["metadata"].setdefault("labels", {})[labelled["labelKey"]] = values[index % len(values)]
            await make_node(self._client, node, strategy)

        await spread(lambda i=i: make(i) for i in range(count))  # type: ignore[misc]  # the default binds i

    async def _create_namespaces(self, operation: Json, _: int) -> None:
        template = operation.get("namespaceTemplatePath")
        labels = (self._body(template, 0, 1)["metadata"].get("labels") or {}) if template else {}
        for index in range(self._workload.count(operation)):
            await self._namespace(f"{operation['prefix']}-{index}", labels)

    async def _create_any(self, operation: Json, _: int) -> None:
        namespace = operation.get("namespace", "")
        if namespace:
            await self._namespace(namespace)
        count = self._workload.count(operation)
        for index in range(count):
            body = self._body(operation["templatePath"], index, count)
            named(body)
            await self._client.create(path(body["kind"], namespace), body)

    async def _create_pod_sets(self, operation: Json, number: int) -> None:
        for index in range(self._workload.count(operation)):
            pods = {**operation["createPodsOp"], "namespace": f"{operation['namespacePrefix']}-{index}"}
            await self._create_pods(pods, number)

    async def _create_pods(self, operation: Json, number: int) -> None:
        namespace = operation.get("namespace") or f"namespace-{number}"
        await self._namespace(namespace)
        measured, keys = operation.get("collectMetrics", False), set[Key]()
        frozen = measured and self._freeze
        used, begun = self._cpu_seconds(), time.monotonic()
        if frozen:
            self._process.send(signal.SIGSTOP)
        try:
            await self._pods(operation, namespace, keys)
            if frozen:
                await asyncio.sleep(SETTLE_SECONDS)
                begun = time.monotonic()
        finally:
            if frozen:
                self._process.send(signal.SIGCONT)
        self._made |= keys
        if operation.get("skipWaitToCompletion"):
            return
        await self._until_bound(keys)
        if measured:
            self._measure(keys, begun, used)
        else:
            self._measured.unbound += self._left(keys)

    async def _pods(self, operation: Json, namespace: str, keys: set[Key]) -> None:
        count = self._workload.count(operation)
        template = operation.get("podTemplatePath") or self._workload.pod
        claims, volumes = (operation.get(f"persistentVolume{one}TemplatePath") for one in ("Claim", ""))

        async def make(index: int) -> None:
            pod = self._body(template, index, count)
            if claims and volumes:
                both = (self._body(one, index, count) for one in (claims, volumes))
                claim = {"claimName": await make_volume(self._client, namespace, *both, index)}
                pod["spec"]["volumes"] = [{"name": "vol", "persistentVolumeClaim": claim}]
            keys.add((namespace, named(pod)))
            await self._client.create(path("Pod", namespace), pod)

        await spread(lambda i=i: make(i) for i in range(count))  # type: ignore[misc]  # the default binds i

    async def _barrier(self, operation: Json, _: int) -> None:
        await self._watch.until(lambda _: True, self._made, STALL_SECONDS, LIMIT_SECONDS)
        chosen = self._chosen(self._made, operation.get("labelSelector") or {})
        if operation.get("stageRequirement") == "Attempted":
            await self._watch.until(lambda pod: pod.attempted, chosen, STALL_SECONDS, LIMIT_SECONDS)
        else:
            await self._until_bound(chosen)

    async def _churn(self, operation: Json, number: int) -> None:
        namespace, seconds = f"churn-{number}", operation.get("intervalMilliseconds", 500) / 1000
        await self._namespace(namespace)
        again, most = operation["mode"] == "recreate", operation.get("number", 0)

        async def work() -> None:
            made: defaultdict[str, list[str]] = defaultdict(list)
            turn = 0
            while again or most == 0 or turn < most:
                for template in operation["templatePaths"]:
                    body = self._body(template, turn, 1)
                    kind, name = body["kind"], named(body)
                    within = namespace if kind in ("Pod", "Service") else ""
                    if again and len(made[template]) >= most:
                        await delete(self._client, kind, within, made[template].pop(0))
                    await self._client.create(path(kind, within), body)
                    made[template].append(name)
                turn += 1
                await asyncio.sleep(seconds)

        self._beside.append(asyncio.create_task(work()))

    async def _delete_pods(self, operation: Json, _: int) -> None:
        namespace, rate = operation["namespace"], operation.get("deletePodsPerSecond", 0)
        within = {key for key in self._made if key[0] == namespace}
        await self._watch.until(lambda _: True, within, STALL_SECONDS, LIMIT_SECONDS)

        async def work() -> None:
            for _, name in sorted(self._chosen(within, operation.get("labelSelector") or {})):
                await delete(self._client, "Pod", namespace, name)
                await asyncio.sleep(1 / rate if rate else 0.0)

        task = asyncio.create_task(work())
        self._beside.append(task)
        if not operation.get("skipWaitToCompletion"):
            await task

    async def _update_any(self, operation: Json, _: int) -> None:
        count, namespace = self._workload.count(operation), operation.get("namespace", "")
        seconds = 1 / (operation.get("updatePerSecond") or UPDATES_PER_SECOND)
        for index in range(count):
            body = self._body(operation["templatePath"], index, count)
            kind, name = body["kind"], body["metadata"]["name"]
            if kind == "Node":
                body["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = name
            for part in (*(operation.get("subresources") or ("",)), "status"):
                await self._client.replace(path(kind, namespace, name, part), body)
            await asyncio.sleep(seconds)

    async def _start_collecting(self, operation: Json, _: int) -> None:
        self._collecting = (time.monotonic(), self._cpu_seconds(), operation)

    async def _stop_collecting(self, _: Json, __: int) -> None:
        assert self._collecting is not None
        begun, used, operation = self._collecting
        within = {key for key in self._made if key[0] in operation["namespaces"]}
        self._measure(self._chosen(within, operation.get("labelSelector") or {}), begun, used)

    def _chosen(self, keys: Collection[Key], labels: dict[str, str]) -> set[Key]:
        """Return those of some pods that the watch shows with these labels."""
        return {
            key for key in keys if key in self._watch.pods and labels.items() <= self._watch.pods[key].labels.items()
        }

    async def _until_bound(self, keys: set[Key]) -> None:
        def over(pod: PodSight) -> bool:
            if self._process.exit_code is not None:
                raise ClusterError(f"the scheduler ended: {self._process.text()[-1000:]}")
            return pod.over

        await self._watch.until(over, keys, STALL_SECONDS, LIMIT_SECONDS)

    def _left(self, keys: set[Key]) -> int:
        return sum(self._watch.refusals(keys).values())

    def _measure(self, keys: set[Key], begun: float, used: float) -> None:
        measured = self._measured
        measured.pods |= keys
        measured.late += [pod.bound - begun for pod in self._watch.bound(keys) if pod.bound is not None]
        measured.cpu_seconds += self._cpu_seconds() - used
        measured.refusals = self._watch.refusals(measured.pods)

    def _cpu_seconds(self) -> float:
        return cpu_seconds({"scheduler": self._process.pid})["scheduler"]

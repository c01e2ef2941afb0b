"""The demo's view of a run: pods through the API server's watch, latencies through the fake nodes' metrics.

Called by `act`, once for each policy. It reads only data that any user can read: it never asks the operator. Writes the
facts of the live view and the scorecard of the summary. Invariant: pods of an earlier policy never count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from cotide_core.classes import CLASS_LABEL, WorkloadClass
from cotide_core.errors import InputError
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY, resource_amount
from cotide_kube.client import KubeClient
from cotide_kube.objects import NodeObject, PodObject
from cotide_kube.reflector import Change, Reflector
from cotide_operator.apis.names import JOB_LABEL
from cotide_operator.apis.types import WORKLOAD_LABEL
from cotide_operator.clock import Clock
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, decode
from cotide_sim.cluster.scorecard import NodeLoad, Scorecard
from cotide_sim.demo.facts import DecisionFact, PodFact, RunFacts, ServiceFact, Stage
from cotide_sim.demo.manifests import NAMESPACE
from cotide_sim.kubelets.admission import pod_requests

SAMPLE_WALL_SECONDS: Final = 0.25
"""As often as the fake nodes refresh their metrics."""
_CPU: Final = "cotide_sim_node_cpu_usage_millicores"
_RATE: Final = "cotide_sim_service_requests_per_second"
_LATENCY: Final = "cotide_sim_service_latency_p95_milliseconds"
_POD_CPU: Final = "cotide_sim_pod_cpu_usage_millicores"
_POD_MEMORY: Final = "cotide_sim_pod_memory_usage_bytes"
_READ: Final = (_CPU, _RATE, _LATENCY, _POD_CPU, _POD_MEMORY)


class Observer:
    """Watches one policy's run until it is cancelled.

    Parameters
    ----------
    facts, scorecard : receive the results.
    clock : simulated time.
    arrivals, completions : simulated second at which each planned job arrived, and its pods, by job name. A pod beyond
        those takes the place of one that was evicted or refused, and waits from when it appears.
    limits : p95 limit in milliseconds of each service, by Workload name.
    node_millicores, node_memory_bytes : capacity of each fake node.
    """

    def __init__(
        self,
        client: KubeClient,
        metrics_url: str,
        clock: Clock,
        facts: RunFacts,
        scorecard: Scorecard,
        *,
        arrivals: Mapping[str, float],
        completions: Mapping[str, int],
        limits: Mapping[str, float],
        node_millicores: int,
        node_memory_bytes: int,
    ) -> None:
        self._client, self._metrics_url, self._clock = client, metrics_url, clock
        self._facts, self._scorecard = facts, scorecard
        self._arrivals, self._limits = arrivals, limits
        self._first_pods = dict(completions)
        self._node_millicores, self._node_memory_bytes = node_millicores, node_memory_bytes
        self._bound_seconds: dict[str, float] = {}
        self._notes: dict[str, str] = {}
        self._service_of: dict[str, str] = {}

    def count_unseen(self, end_seconds: float) -> None:
        """At the end of the run: jobs that arrived but never had a visible pod count as late for all that time."""
        for job, pods in self._first_pods.items():
            self._facts.late_seconds += pods * max(0.0, end_seconds - self._arrivals[job])

    async def watch_pods(self) -> None:
        """Follow the namespace's pods; ends only by cancellation."""
        reflector = Reflector(self._client, f"/api/v1/namespaces/{NAMESPACE}/pods", PodObject)
        async for batch in reflector.batches():
            for change in batch:
                self._take(change)

    async def watch_nodes(self) -> None:
        """Follow the reclaimed capacity that nodes publish; ends only by cancellation."""
        reflector = Reflector(self._client, "/api/v1/nodes", NodeObject)
        async for batch in reflector.batches():
            for change in batch:
                if change.object is not None:
                    published = change.object.status.allocatable.get(RECLAIMED_CPU)
                    if published is not None:
                        amount = resource_amount(RECLAIMED_CPU, published)
                        self._facts.reclaimed_millicores[change.object.metadata.name] = amount

    async def watch_metrics(self, session: aiohttp.ClientSession) -> None:
        """Read the fake nodes' metrics again and again; ends only by cancellation."""
        while True:
            try:
                async with session.get(self._metrics_url) as answer:
                    text = await answer.text()
            except aiohttp.ClientError:
                # One reading is lost; if the fake nodes have ended, the stage reports it.
                text = ""
            if text:
                self.sample(text, self._clock.now())
            await asyncio.sleep(SAMPLE_WALL_SECONDS)

    def sample(self, text: str, now_seconds: float) -> None:
        """Take one reading of the fake nodes' metrics."""
        rates: dict[str, float] = {}
        latencies: dict[str, tuple[str, float]] = {}
        shares: dict[str, float] = {}
        online: dict[str, list[float]] = {}
        # The page's other families, several times as long, are for a Prometheus.
        wanted = "".join(line for line in text.splitlines(keepends=True) if line.startswith(_READ))
        for family in text_string_to_metric_families(wanted):
            for sample in family.samples:
                labels = sample.labels
                if sample.name == _CPU:
                    shares[labels["node"]] = sample.value / self._node_millicores
                    online.setdefault(labels["node"], [0.0, 0.0])
                elif labels.get("namespace") != NAMESPACE:
                    continue
                elif sample.name == _RATE:
                    rates[labels["pod"]] = sample.value
                elif sample.name == _LATENCY:
                    latencies[labels["pod"]] = (labels["node"], sample.value)
                elif labels["pod"] in self._service_of:
                    # Every online pod of the demo belongs to a Workload.
                    resource = 0 if sample.name == _POD_CPU else 1
                    online.setdefault(labels["node"], [0.0, 0.0])[resource] += sample.value
        self._facts.now_seconds = now_seconds
        self._facts.node_cpu_share = shares
        self._facts.services = {
            pod: ServiceFact(pod, node, rates.get(pod, 0.0), latency, self._limits[self._service_of[pod]])
            for pod, (node, latency) in latencies.items()
            if pod in self._service_of
        }
        for fact in self._facts.services.values():
            self._scorecard.observe_service(
                f"{NAMESPACE}/{fact.name}",
                f"{NAMESPACE}/{self._service_of[fact.name]}",
                over_limit=fact.over_limit,
                now_seconds=now_seconds,
            )
        self._scorecard.observe_cpu(self._facts.cpu_share(), now_seconds)
        self._weigh_nodes(online, now_seconds)

    def _weigh_nodes(self, online: Mapping[str, list[float]], now_seconds: float) -> None:
        """Compare the load of each node with its capacity."""
        held: dict[str, list[int]] = {node: [0, 0] for node in online}
        for fact in self._facts.pods.values():
            if fact.holds and fact.workload_class is not WorkloadClass.ONLINE and fact.node in held:
                held[fact.node][0] += fact.millicores
                held[fact.node][1] += fact.memory_bytes
        capacity = (self._node_millicores, self._node_memory_bytes)
        for node, used in online.items():
            load = NodeLoad(node, used[0], used[1], held[node][0], held[node][1], capacity[0], capacity[1])
            self._scorecard.observe_node(load, now_seconds)
        self._facts.node_load_share = {
            node: max((used[at] + held[node][at]) / capacity[at] for at in (0, 1)) for node, used in online.items()
        }
        self._facts.overload_slots = self._scorecard.overload_slots()

    def _take(self, change: Change[PodObject]) -> None:
        pod = change.object
        if pod is None:
            return
        now = self._clock.now()
        metadata = pod.metadata
        if change.kind == "DELETED":
            fact = self._facts.pods.get(metadata.uid)
            if fact is not None and fact.stage in (Stage.QUEUED, Stage.PLACED, Stage.RUNNING):
                self._facts.pods.pop(metadata.uid)
                self._scorecard.observe_gone(metadata.uid, now)
            self._follow_readiness(pod, now, ready=False)
            return
        workload_class = _class_of(pod)
        service = metadata.labels.get(WORKLOAD_LABEL)
        job = metadata.labels.get(JOB_LABEL)
        if service is not None:
            self._service_of[metadata.name] = service
        known = self._facts.pods.get(metadata.uid)
        if known is None:
            arrival = now
            if job is not None and self._first_pods.get(job, 0) > 0:
                self._first_pods[job] -= 1
                arrival = self._arrivals[job]
                self._facts.late_seconds += max(0.0, now - arrival)
            self._scorecard.observe_arrival(metadata.uid, workload_class, arrival)
            wanted = pod_requests(pod.spec)
            known = self._facts.pods[metadata.uid] = PodFact(
                metadata.name,
                workload_class,
                Stage.QUEUED,
                millicores=wanted.get(CPU, 0) + wanted.get(RECLAIMED_CPU, 0),
                memory_bytes=wanted.get(MEMORY, 0) + wanted.get(RECLAIMED_MEMORY, 0),
            )
        self._move(known, pod, now)
        self._follow_readiness(pod, now, ready=_is_ready(pod))
        self._explain(pod, now)

    def _follow_readiness(self, pod: PodObject, now: float, *, ready: bool) -> None:
        service = pod.metadata.labels.get(WORKLOAD_LABEL)
        if service is not None:
            observe = self._scorecard.observe_ready if ready else self._scorecard.observe_unready
            observe(pod.metadata.uid, f"{NAMESPACE}/{service}", now)

    def _move(self, fact: PodFact, pod: PodObject, now: float) -> None:
        uid = pod.metadata.uid
        stage = _stage_of(pod)
        if pod.spec.node_name and fact.node is None:
            fact.node = pod.spec.node_name
            self._bound_seconds[uid] = now
            self._scorecard.observe_bound(uid, now)
        if stage in (Stage.RUNNING, Stage.SUCCEEDED, Stage.FAILED) and fact.stage in (Stage.QUEUED, Stage.PLACED):
            self._scorecard.observe_started(uid, now)
            if fact.workload_class is not WorkloadClass.ONLINE:
                self._facts.late_seconds += now - self._bound_seconds.pop(uid, now)
        job = pod.metadata.labels.get(JOB_LABEL)
        if stage is Stage.SUCCEEDED and fact.stage is not Stage.SUCCEEDED and job is not None:
            self._scorecard.observe_succeeded(uid, job)
        fact.stage = stage
        evicted = any(condition.type == "DisruptionTarget" for condition in pod.status.conditions)
        if (evicted or pod.status.reason == "Evicted") and not fact.evicted:
            fact.evicted = True
            self._scorecard.observe_evicted(uid, now)

    def _explain(self, pod: PodObject, now: float) -> None:
        text = pod.metadata.annotations.get(DECISION_ANNOTATION)
        if text is None or self._notes.get(pod.metadata.uid) == text:
            return
        self._notes[pod.metadata.uid] = text
        try:
            decision = decode(text, f"{NAMESPACE}/{pod.metadata.name}").decision
        except InputError:
            # A person's kubectl wrote the annotation: the demo must not end for it, and shows the next one.
            return
        prefix = f"{decision.node}: " if decision.node else ""
        self._facts.decisions.append(DecisionFact(now, pod.metadata.name, decision.node, f"{prefix}{decision.message}"))


def _is_ready(pod: PodObject) -> bool:
    conditions = pod.status.conditions
    return pod.status.phase == "Running" and any(
        condition.type == "Ready" and condition.status == "True" for condition in conditions
    )


def _class_of(pod: PodObject) -> WorkloadClass:
    label = pod.metadata.labels.get(CLASS_LABEL)
    return WorkloadClass(label) if label in set(WorkloadClass) else WorkloadClass.ONLINE


def _stage_of(pod: PodObject) -> Stage:
    match pod.status.phase:
        case "Running":
            return Stage.RUNNING
        case "Succeeded":
            return Stage.SUCCEEDED
        case "Failed":
            return Stage.FAILED
        case _:
            return Stage.PLACED if pod.spec.node_name else Stage.QUEUED

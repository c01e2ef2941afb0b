"""What the demo sees of a run: pods through the API server's watch, latencies through the fake nodes' metrics.

Called by `act`, once for each policy. It reads what any user could read and nothing else: it never asks the operator.
Writes the facts of the live view and the scorecard of the summary. Invariant: pods of an earlier policy never count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from cotide_cli.demo.facts import DecisionFact, PodFact, RunFacts, ServiceFact, Stage
from cotide_cli.demo.manifests import NAMESPACE
from cotide_core.classes import CLASS_LABEL, WorkloadClass
from cotide_core.errors import InputError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.reflector import Change, Reflector
from cotide_operator.clock import Clock
from cotide_operator.decision_note import DECISION_ANNOTATION, decode
from cotide_operator.resources import JOB_LABEL, WORKLOAD_LABEL
from cotide_sim.scorecard import Scorecard

SAMPLE_WALL_SECONDS: Final = 0.25
"""As often as the fake nodes refresh their metrics."""
_CPU: Final = "cotide_sim_node_cpu_usage_millicores"
_RATE: Final = "cotide_sim_service_requests_per_second"
_LATENCY: Final = "cotide_sim_service_latency_p95_milliseconds"


class Observer:
    """Watches one policy's run until it is cancelled.

    Parameters
    ----------
    facts, scorecard : what is written.
    clock : simulated time.
    arrivals : simulated second at which each planned job arrived, by job name.
    limits : p95 limit in milliseconds of each service, by Workload name.
    node_millicores : capacity of each fake node.
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
        limits: Mapping[str, float],
        node_millicores: int,
    ) -> None:
        self._client, self._metrics_url, self._clock = client, metrics_url, clock
        self._facts, self._scorecard = facts, scorecard
        self._arrivals, self._limits = arrivals, limits
        self._node_millicores = node_millicores
        self._notes: dict[str, str] = {}
        self._service_of: dict[str, str] = {}

    async def watch_pods(self) -> None:
        """Follow the namespace's pods; ends only by cancellation."""
        reflector = Reflector(self._client, f"/api/v1/namespaces/{NAMESPACE}/pods", PodObject)
        async for batch in reflector.batches():
            for change in batch:
                self._take(change)

    async def watch_metrics(self, session: aiohttp.ClientSession) -> None:
        """Read the fake nodes' metrics again and again; ends only by cancellation."""
        while True:
            try:
                async with session.get(self._metrics_url) as answer:
                    text = await answer.text()
            except aiohttp.ClientError:
                # One reading is lost; if the fake nodes have ended, the stage says so.
                text = ""
            if text:
                self.sample(text, self._clock.now())
            await asyncio.sleep(SAMPLE_WALL_SECONDS)

    def sample(self, text: str, now_seconds: float) -> None:
        """Take one reading of the fake nodes' metrics."""
        rates: dict[str, float] = {}
        latencies: dict[str, tuple[str, float]] = {}
        shares: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = sample.labels
                if sample.name == _CPU:
                    shares[labels["node"]] = sample.value / self._node_millicores
                elif labels.get("namespace") != NAMESPACE:
                    continue
                elif sample.name == _RATE:
                    rates[labels["pod"]] = sample.value
                elif sample.name == _LATENCY:
                    latencies[labels["pod"]] = (labels["node"], sample.value)
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
                self._service_of[fact.name],
                over_limit=fact.over_limit,
                now_seconds=now_seconds,
            )
        self._scorecard.observe_cpu(self._facts.cpu_share(), now_seconds)

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
            return
        workload_class = _class_of(pod)
        service = metadata.labels.get(WORKLOAD_LABEL)
        job = metadata.labels.get(JOB_LABEL)
        if service is not None:
            self._service_of[metadata.name] = service
        known = self._facts.pods.get(metadata.uid)
        if known is None:
            arrival = self._arrivals.get(job, now) if job is not None else now
            self._scorecard.observe_arrival(metadata.uid, workload_class, arrival)
            known = self._facts.pods[metadata.uid] = PodFact(metadata.name, workload_class, Stage.QUEUED)
        self._move(known, pod, now)
        self._explain(pod, now)

    def _move(self, fact: PodFact, pod: PodObject, now: float) -> None:
        uid = pod.metadata.uid
        stage = _stage_of(pod)
        if pod.spec.node_name and fact.node is None:
            fact.node = pod.spec.node_name
            self._scorecard.observe_bound(uid, now)
        if stage in (Stage.RUNNING, Stage.SUCCEEDED, Stage.FAILED) and fact.stage in (Stage.QUEUED, Stage.PLACED):
            self._scorecard.observe_started(uid, now)
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
            # Someone's kubectl wrote the annotation: the demo must not end for it, and shows the next one.
            return
        place = f"{decision.node}: " if decision.node else ""
        self._facts.decisions.append(DecisionFact(now, pod.metadata.name, decision.node, f"{place}{decision.message}"))


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

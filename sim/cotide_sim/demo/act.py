"""One act of the demo: one policy's run from an empty cluster to its figures.

Called by `demo_command`, once for each policy, on the same stage with the same arrivals. Everything happens through
the Kubernetes API: Workloads and Jobs are created as a user would, and are deleted at the end. Invariant: an act leaves
no pod, Job or Workload behind, so that the next policy starts from the same cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import aiohttp
import yaml

from cotide_core.config import HierarchicalConfig
from cotide_core.errors import ClusterError
from cotide_core.policies.catalogue import by_slack
from cotide_core.units import MEMORY, counted, resource_amount
from cotide_kube.answers import ApiError
from cotide_sim.cluster.scorecard import Scorecard
from cotide_sim.demo.facts import RunFacts
from cotide_sim.demo.live import LiveView
from cotide_sim.demo.manifests import API_VERSION, NAMESPACE, Manifest, job_manifest, service_manifest
from cotide_sim.demo.observer import Observer
from cotide_sim.demo.processes import Child
from cotide_sim.demo.stage import NODE_CORES, NODE_MEMORY, START_SECONDS, Stage, free_port
from cotide_sim.demo.summary import PolicyOutcome
from cotide_sim.workloads.plan import Plan
from cotide_sim.workloads.scenarios import SLOT_SECONDS, watchful

LEAD_WALL_SECONDS: Final = 3.0
"""Chosen: the services get this long to start before the first Job arrives."""
FRAME_WALL_SECONDS: Final = 0.25
"""Chosen: how often the view is drawn."""
CLEAN_WALL_SECONDS: Final = 60.0
WARM_UP: Final = "warm-up"
"""The name of the Job that exists before the clock starts."""
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_COLLECTIONS: Final = {
    "Job": f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/jobs",
    "Workload": f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/workloads",
}


async def play(stage: Stage, plan: Plan, policy: str, ledger: Path, view: LiveView) -> PolicyOutcome:
    """Run one policy on the plan and return its figures."""
    async with _operator(stage, policy, ledger) as operator:
        await _warm_up(stage, plan, operator)
        start = stage.clock.now() + LEAD_WALL_SECONDS * stage.clock.speed
        facts = RunFacts(policy, start, plan.duration_seconds, jobs_planned=len(plan.jobs))
        scorecard = Scorecard(start_seconds=start, slot_seconds=SLOT_SECONDS)
        for job in plan.jobs:
            scorecard.observe_job(job.name, job.completions)
        observer = Observer(
            stage.client,
            stage.metrics_url,
            stage.clock,
            facts,
            scorecard,
            arrivals={job.name: start + job.at_seconds for job in plan.jobs},
            completions={job.name: job.completions for job in plan.jobs},
            limits={service.name: service.limit_milliseconds for service in plan.services},
            node_millicores=NODE_CORES * 1000,
            node_memory_bytes=resource_amount(MEMORY, NODE_MEMORY),
        )
        for service in plan.services:
            await stage.client.create(_COLLECTIONS["Workload"], service_manifest(service, start))
            scorecard.observe_service_arrival(f"{NAMESPACE}/{service.name}", service.replicas, stage.clock.now())
        async with aiohttp.ClientSession() as session:
            running = [
                asyncio.create_task(observer.watch_pods()),
                asyncio.create_task(observer.watch_nodes()),
                asyncio.create_task(observer.watch_metrics(session)),
                asyncio.create_task(_submit(stage, plan, facts)),
            ]
            try:
                await _show_until_over(stage, operator, facts, view, running)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
        observer.count_unseen(start + plan.duration_seconds)
        summary = scorecard.summary(start + plan.duration_seconds)
        await _clean(stage, operator)
        return PolicyOutcome(
            summary,
            {name.removeprefix(f"{NAMESPACE}/"): over for name, over in scorecard.violation_ratio_by_service().items()},
            str(ledger) if stage.options.ledger is not None else None,
            facts.late_seconds,
            tuple(facts.history),
        )


@contextlib.asynccontextmanager
async def _operator(stage: Stage, policy: str, ledger: Path) -> AsyncIterator[Child]:
    port = free_port()
    configuration = stage.workspace / f"operator-{policy}.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(stage, policy, ledger), sort_keys=False))
    arguments = [
        "operator",
        "--kubeconfig", str(stage.kubeconfig),
        "--config", str(configuration),
        "--metrics-port", str(port),
        "--install-crds",
    ]  # fmt: skip
    async with Child(f"operator-{policy}", arguments, stage.workspace) as operator:
        await _until_ready(operator, f"http://127.0.0.1:{port}/readyz")
        yield operator


def _configuration(stage: Stage, policy: str, ledger: Path) -> Manifest:
    # A slot is little more than a second of the wall: it needs several samples, and patches as quick as that.
    slack_sections: Manifest = {
        "slotSeconds": SLOT_SECONDS,
        "reclaimed": {"minimumIntervalSeconds": 0.5 * SLOT_SECONDS / stage.clock.speed, "patchesPerSecond": 1000.0},
    }
    knobs = watchful(HierarchicalConfig())
    slack_sections["overload"] = {
        "share": knobs.overload_share,
        "observationSeconds": knobs.overload_observation_seconds,
        "pauseSeconds": knobs.overload_pause_seconds,
        "flapWindowSeconds": knobs.flap_window_seconds,
        "cordonSeconds": knobs.cordon_seconds,
    }
    slack = by_slack(policy)
    return {
        "apiVersion": API_VERSION,
        "kind": "CotideConfiguration",
        "policy": policy,
        **(slack_sections if slack else {}),
        "seed": stage.options.seed,
        "models": {"directory": str(stage.prepared.models_directory)},
        "metricsSource": {
            "scrape": {"url": stage.metrics_url},
            "intervalSeconds": 0.25 if slack else 0.5,
            "staleAfterSeconds": 60.0,
        },
        "leaderElection": {"enabled": False},
        "ledger": {"directory": str(ledger)},
        "simulatedTime": {"originSeconds": stage.clock.origin_seconds, "speed": stage.clock.speed},
    }


async def _until_ready(operator: Child, url: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_SECONDS
    async with aiohttp.ClientSession() as session:
        while True:
            operator.check()
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            if loop.time() > deadline:
                raise ClusterError(f"the operator was not ready within {START_SECONDS:g} s; log:\n{operator.tail()}")
            await asyncio.sleep(0.1)


async def _warm_up(stage: Stage, plan: Plan, operator: Child) -> None:
    """Wait until a Job's pod is made, and delete both.

    An operator binds before it handles Jobs: that part starts later and takes longest under the first policy. Without
    this wait, all of its jobs would be late.
    """
    if not plan.jobs:
        return
    await stage.client.create(_COLLECTIONS["Job"], job_manifest(replace(plan.jobs[0], name=WARM_UP, completions=1)))
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while not await stage.client.list(_PODS):
        stage.check()
        operator.check()
        if asyncio.get_running_loop().time() > deadline:
            raise ClusterError(f"the operator made no pod of a Job within {START_SECONDS:g} s; log:\n{operator.tail()}")
        await asyncio.sleep(0.1)
    await _clean(stage, operator)


async def _submit(stage: Stage, plan: Plan, facts: RunFacts) -> None:
    """Create each Job at its simulated second."""
    for job in sorted(plan.jobs, key=lambda planned: planned.at_seconds):
        due = facts.started_seconds + job.at_seconds
        wait = (due - stage.clock.now()) / stage.clock.speed
        if wait > 0:
            await asyncio.sleep(wait)
        await stage.client.create(_COLLECTIONS["Job"], job_manifest(job))
        facts.jobs_submitted += 1


async def _show_until_over(
    stage: Stage, operator: Child, facts: RunFacts, view: LiveView, running: Sequence[asyncio.Task[None]]
) -> None:
    loop = asyncio.get_running_loop()
    with view:
        while stage.clock.now() < facts.started_seconds + facts.duration_seconds:
            stage.check()
            operator.check()
            for task in running:
                if task.done():
                    task.result()
            facts.keep_moment()
            view.show(facts, loop.time())
            await asyncio.sleep(FRAME_WALL_SECONDS)


async def _clean(stage: Stage, operator: Child) -> None:
    """Delete what the act made and wait until the cluster is empty.

    Raises
    ------
    ClusterError
        When it takes too long, or when the operator has ended, which has finalizers on Jobs and Workloads.
    """
    for path in _COLLECTIONS.values():
        await stage.client.delete(path, propagation="Background")
    deadline = asyncio.get_running_loop().time() + CLEAN_WALL_SECONDS
    while left := await _left(stage):
        stage.check()
        operator.check()
        if asyncio.get_running_loop().time() > deadline:
            what = f"{counted(left, 'object')} still there {CLEAN_WALL_SECONDS:g} s after being deleted"
            raise ClusterError(f"{what}; the operator's log:\n{operator.tail()}")
        await asyncio.sleep(0.2)


async def _left(stage: Stage) -> int:
    return sum([len(await stage.client.list(path)) for path in (_PODS, *_COLLECTIONS.values())])


async def make_namespace(stage: Stage) -> None:
    """Create the demo's namespace."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    try:
        await stage.client.create("/api/v1/namespaces", manifest)
    except ApiError as error:
        if error.status != 409:
            raise

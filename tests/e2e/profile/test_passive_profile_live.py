"""`cotide profile passive` beside a real Prometheus that scrapes fake nodes, while a batch job comes and goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from manifests import pod_manifest
from prometheus_server import needs_prometheus, running_prometheus
from servers import Server

from cotide_core.forecasts import MixBatch
from cotide_kube.client import KubeClient
from cotide_lab.inputs.training_data import qos_from_csv
from cotide_lab.predictors.profiling.design import Rule
from cotide_lab.predictors.profiling.windows import JobKind
from cotide_lab.profile.cluster_jobs import ClusterMachine
from cotide_lab.profile.journal import Journal
from cotide_lab.profile.passive import Alternation, Watch, mix_of_pods, watch
from cotide_lab.profile.plan import BatchJob, Plan
from cotide_lab.profile.profile_command import command
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

PODS = "/api/v1/namespaces/default/pods"
RATE = 50_000.0
NODE_MILLICORES = 4000
SORT = JobKind("sort", 1_000_000_000, 2000)
RPS = 'sum(cotide_sim_service_requests_per_second{node="fake-0"})'
LATENCY = 'max(cotide_sim_service_latency_p95_milliseconds{node="fake-0"})'
INTERVAL_SECONDS = 1.0
WANTED = 3
"""Windows of each mix."""


def law(jobs: int) -> float:
    """The p95 of the service on the fake node beside so many jobs."""
    one = np.array([float(jobs)])
    pressure = one * SORT.millicores / NODE_MILLICORES
    sizes = one[:, None] * SORT.input_bytes
    mixes = MixBatch(np.array([RATE]), np.zeros(1), np.ones(1), pressure, ("sort",), one[:, None], sizes)
    return float(GeneratedInterference().p95_milliseconds(mixes)[0])


@pytest.mark.fake_nodes("rates and latencies that the nodes make up")
@needs_prometheus
async def test_windows_with_and_without_a_job_hold_what_prometheus_measured(server: Server, tmp_path: Path) -> None:
    shape = NodeShape(millicores=NODE_MILLICORES)
    plan = Plan(
        "passive", LATENCY, (BatchJob(SORT, ""),), (), (), False, 0.0, INTERVAL_SECONDS, Rule(), 1.0,
        NODE_MILLICORES, "default/web", 0,
    )  # fmt: skip
    journal = Journal(tmp_path / "out", plan)
    async with (
        running_prometheus(tmp_path) as prometheus,
        KubeClient(server.credentials) as client,
        running_fleet(client, FleetSettings(GeneratedInterference(), shape=shape, metrics_port=0)) as fleet,
    ):
        assert fleet.metrics_port is not None
        await server.until_accounts(client, "default")
        await server.until_open(client)
        prometheus.targets(fleet.metrics_port)
        notes = {"sim.cotide.dev/rates": f"{RATE:g}"}
        there = {"nodeName": "fake-0"}
        await client.create(PODS, pod_manifest("web", "1", "1Gi", cls="online", annotations=notes, spec=there))

        async def scraped() -> bool:
            return await prometheus.values(LATENCY) == [pytest.approx(law(0))]

        await server.until("the service's latency is in Prometheus", scraped)
        machine = await asyncio.to_thread(
            ClusterMachine, "fake-0", "default", "", kubeconfig=str(server.kubeconfig(tmp_path))
        )
        what = Watch(prometheus.url, RPS, LATENCY, INTERVAL_SECONDS, 3600.0)
        watching = asyncio.create_task(
            watch(
                journal,
                what,
                lambda: mix_of_pods(machine.pods_of_node(), (SORT,)),
                Alternation(None, ()),
                lambda _what, _share: None,
            )
        )

        def measured(jobs: int) -> bool:
            """Whether there are enough windows, the last one with what the law says: one may still show the past."""
            if watching.done():
                watching.result()
            mix = (("sort", jobs),) if jobs else ()
            found = [window.p95_milliseconds for window in journal.windows if window.cell.mix == mix]
            return len(found) >= WANTED and found[-1] == pytest.approx(law(jobs))

        await server.until("windows without a job", lambda: measured(0))
        notes = {"cotide.dev/type": "sort", "cotide.dev/input-size": "1G", "sim.cotide.dev/lone-seconds": "100000"}
        job = pod_manifest("sort", "2", "1Gi", cls="batch", annotations=notes, spec=there)
        await client.create(PODS, job)
        await server.until("windows with one", lambda: measured(1))
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    assert law(1) > 2 * law(0)
    done = CliRunner().invoke(command, ["page", str(tmp_path / "out"), "-o", "json"], standalone_mode=False)
    assert done.exception is None
    cells = json.loads(done.stdout)["cells"]
    assert {(cell["requests_per_second"], sum(cell["jobs"].values())) for cell in cells} == {(RATE, 0), (RATE, 1)}
    assert set(qos_from_csv(tmp_path / "out" / "samples.csv").mixes.counts.sum(axis=1).tolist()) == {0.0, 1.0}
    assert (tmp_path / "out" / "profile.html").exists()

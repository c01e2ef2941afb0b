"""Work that says its phase by a file, on real kubelets: a probe reads it, and no right is needed."""

from __future__ import annotations

from typing import Any

from containers import shell
from manifests import job_manifest
from real_cluster import ALONE, RealCluster

SCRIPT = """\
enter() {
  printf %s "$1" > /phase/wanted
  until [ "$(cat /podinfo/granted)" = "$1" ]; do sleep 1; done
}
enter read; enter count; enter write
"""
SAME = '[ "$(cat /phase/wanted)" = "$(cat /podinfo/granted)" ]'
MOUNTS = [{"name": "phase", "mountPath": "/phase"}, {"name": "podinfo", "mountPath": "/podinfo"}]
GRANTED = {"fieldPath": "metadata.annotations['cotide.dev/granted-phase']"}
VOLUMES = [
    {"name": "phase", "emptyDir": {}},
    {"name": "podinfo", "downwardAPI": {"items": [{"path": "granted", "fieldRef": GRANTED}]}},
]
PHASES = [
    {"name": name, "resources": {"cpu": cpu}} for name, cpu in (("read", "50m"), ("count", "200m"), ("write", "20m"))
]


async def test_a_file_that_a_probe_reads_takes_work_through_its_phases(cluster: RealCluster) -> None:
    probe = {"exec": {"command": ["/bin/sh", "-c", SAME]}, "periodSeconds": 1, "timeoutSeconds": 10}
    container = shell(SCRIPT, volumeMounts=MOUNTS, readinessProbe=probe)
    body: dict[str, Any] = {
        "metadata": {"annotations": {"cotide.dev/phase-signal": "readiness"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": VOLUMES},
    }
    async with cluster.operator(ALONE):
        await cluster.client.create(cluster.jobs, job_manifest("files", template=body, phases=PHASES))

        async def succeeded() -> bool:
            return await cluster.phase("files") == "Succeeded"

        await cluster.until("the work has gone through all its phases", succeeded)
        (pod,) = await cluster.client.list(cluster.pods)
        assert pod["metadata"]["annotations"]["cotide.dev/granted-phase"] == "write"
        assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "20m"
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0

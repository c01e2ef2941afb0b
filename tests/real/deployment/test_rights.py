"""The operator's ServiceAccount on a server with RBAC: it has the rights that deploy/ names, uses each, and lacks none.

Used rights are those of the server's audit log; had rights are what the server answers to a SelfSubjectRulesReview.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import pytest
from control_plane import ControlPlane, free_port
from real_cluster import RealCluster
from relay import relaying
from rights import EVERYBODY, Right, Used, granted, rules

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_sim.apiserver.http.faults import Fault

ELSEWHERE: Final[dict[Right, str]] = {
    ("", "events", "patch", ""): "test_rights_one_by_one.py: the same event again, 15 s later or more",
    ("authentication.k8s.io", "tokenreviews", "create", ""): "test_rights_one_by_one.py: somebody wants a debug page",
    ("authorization.k8s.io", "subjectaccessreviews", "create", ""): "test_rights_one_by_one.py, likewise",
    ("metrics.k8s.io", "pods", "list", ""): "test_rights_one_by_one.py, with an API service of that group",
    ("cotide.dev", "jobs/finalizers", "update", ""): "test_rights_one_by_one.py: an admission plugin asks for it",
    ("cotide.dev", "workloads/finalizers", "update", ""): "test_rights_one_by_one.py, likewise",
    ("", "secrets", "update", "cotide-admission-certificate"): "test_admission_certificates.py: after two months",
    ("scheduling.x-k8s.io", "podgroups", "watch", ""): "test_pod_groups.py: on a server that serves them",
    ("scheduling.k8s.io", "workloads", "watch", ""): "test_pod_groups.py, likewise",
    ("scheduling.k8s.io", "podgroups", "watch", ""): "tests/real/newer: on Kubernetes 1.36 and newer",
    ("scheduling.k8s.io", "podgroups/status", "patch", ""): "tests/real/newer, likewise",
    ("apiextensions.k8s.io", "customresourcedefinitions", "list", ""): "test_upgrade.py: a roll-back",
    ("apiextensions.k8s.io", "customresourcedefinitions", "watch", ""): "test_upgrade.py, likewise",
    **{
        ("", "configmaps", verb, ""): "test_rights_one_by_one.py: what was learned in hours outlives the pod"
        for verb in ("get", "list", "create", "update", "delete")
    },
}
"""Rights that a day's work does not use, and the test that fails without each."""
SETTINGS: Final = """\
policy: hierarchical
slotSeconds: 20
queue: {{backoffInitialSeconds: 0.2, backoffMaxSeconds: 0.5, unschedulableFlushSeconds: 0.5}}
metricsSource: {{scrape: {{url: "http://127.0.0.1:{port}/metrics"}}, intervalSeconds: 0.25, staleAfterSeconds: 60}}
reclaimed: {{jobPods: false}}
admission: {{enabled: true, port: {admission}}}
"""


async def operator_client(plane: ControlPlane) -> KubeClient:
    token = await plane.token("cotide-system", "cotide-operator")
    return KubeClient(load_credentials(str(plane.kubeconfig("asker", token=token))))


async def has(client: KubeClient, namespace: str) -> tuple[set[Right], set[str]]:
    """Return what a server says that a client may do in a namespace, and with which paths that are no resources."""
    spec = {"namespace": namespace}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": spec}
    answer = (await client.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body))["status"]
    assert not answer["incomplete"]
    rights = {right for right in rules({"rules": answer["resourceRules"]}) if not right[1].startswith(EVERYBODY)}
    return rights, {path for rule in answer["nonResourceRules"] for path in rule["nonResourceURLs"]}


async def test_the_account_has_exactly_what_deploy_names(deployed: ControlPlane) -> None:
    anybody = deployed.kubeconfig("anybody", token=await deployed.token("default", "default"))
    async with await operator_client(deployed) as client, KubeClient(load_credentials(str(anybody))) as other:
        at_home, paths = await has(client, "cotide-system")
        abroad, _ = await has(client, "kube-system")
        assert (await has(other, "default")) == (set(), paths)  # discovery and health, as everybody
    assert at_home == granted()
    assert abroad == granted(everywhere=True)


USED_SECONDS: Final = 60.0
"""Chosen: some watches open, and some events repeat, when the work is done already."""
DENIED: Final = [
    ("GET", "/api/v1/namespaces/kube-system/secrets", None),
    ("GET", "/api/v1/namespaces/cotide-system/secrets", None),
    ("GET", "/api/v1/namespaces/cotide-system/secrets/another", None),
    ("GET", "/api/v1/configmaps", None),
    ("DELETE", "/api/v1/nodes/none", None),
    ("PATCH", "/api/v1/nodes/none", {"spec": {"unschedulable": True}}),
    ("PUT", "/api/v1/namespaces/default/pods/none", {}),
    ("POST", "/api/v1/namespaces/default/pods/none/exec", {}),
    ("DELETE", "/api/v1/namespaces/default", None),
    ("POST", "/api/v1/namespaces", {}),
    ("PATCH", "/apis/cotide.dev/v1alpha1/namespaces/default/jobs/none", {"spec": {}}),
    ("DELETE", "/apis/cotide.dev/v1alpha1/namespaces/default/jobs/none", None),
    ("PATCH", "/apis/apps/v1/namespaces/default/deployments/none", {"spec": {}}),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {}),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/cotide-system/leases/another", {}),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/cotide-operator", {}),
    ("PATCH", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/another", {}),
    ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {}),
]


async def test_a_table_of_things_is_forbidden(deployed: ControlPlane) -> None:
    async with await operator_client(deployed) as client:
        for method, path, body in DENIED:
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            with pytest.raises(ApiError) as refusal:
                await client.request(method, path, body, content_type=kind)
            assert refusal.value.status == 403, (method, path, str(refusal.value))


async def test_each_right_is_used_and_none_is_missed(cluster: RealCluster) -> None:
    with contextlib.suppress(ApiError):  # another test's operator may have left it, and then nobody makes it
        await cluster.client.delete("/apis/coordination.k8s.io/v1/namespaces/cotide-system/leases/cotide-operator")
    used = Used(cluster)
    async with (
        relaying(cluster.plane.anonymous) as relay,
        cluster.nodes(2, "--cpu", "4", "--memory", "8Gi", "--speed", "20") as port,
        cluster.operator(SETTINGS.format(port=port, admission=free_port()), through=relay.url),
    ):
        # What became of a pod whose binding is refused is looked at.
        relay.faults.add(Fault(status=409, method="POST", path="/binding$", count=1))
        await work_through(cluster)
        with contextlib.suppress(pytest.fail.Exception):  # what is missing is named below
            await cluster.until(
                "all rights were used", lambda: granted() - ELSEWHERE.keys() <= used.rights(), USED_SECONDS
            )
    assert used.missed() == set(), "the operator asked for what deploy/ does not grant"
    assert granted() - used.rights() <= ELSEWHERE.keys(), "deploy/ grants what nobody uses"


def template(cpu: str, seconds: str = "20") -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {
        "metadata": {"annotations": {"sim.cotide.dev/lone-seconds": seconds}},
        "spec": {"containers": [container]},
    }


async def make(cluster: RealCluster, kind: str, name: str, **spec: Any) -> None:
    body = {"apiVersion": "cotide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    await cluster.client.create(cluster.path(f"{kind.lower()}s", "cotide.dev/v1alpha1"), body)


async def work_through(cluster: RealCluster) -> None:
    """Give the operator all kinds of its work."""
    await mount(cluster)
    old = {"metadata": {"name": "old", "labels": {"app": "old"}}, "spec": template("100m")["spec"]}
    await cluster.client.create(cluster.pods, old)
    await make(cluster, "Workload", "old", selector={"matchLabels": {"app": "old"}})
    await make(cluster, "Workload", "web", replicas=1, template={"spec": template("100m")["spec"]})
    await make(cluster, "Job", "huge", template=template("100"))
    # Gratis pods fill both nodes; a batch pod then takes the place of one.
    filler = {"class": "gratis", "completions": 2, "parallelism": 2, "template": template("3", "100000")}
    await make(cluster, "Job", "filler", **filler)
    await until_filled(cluster)
    await report(cluster)
    # Its pod is bound where half a core is free and gives most of it back.
    phases = [
        {"name": name, "resources": {"cpu": cpu, "memory": "64Mi"}} for name, cpu in (("a", "100m"), ("b", "500m"))
    ]
    container = {"name": "c", "image": "none"}
    long = {"annotations": {"sim.cotide.dev/lone-seconds": "100000"}}
    await make(
        cluster, "Job", "phased", template={"metadata": long, "spec": {"containers": [container]}}, phases=phases
    )
    path = f"{cluster.path('workloads', 'cotide.dev/v1alpha1')}/web"
    await cluster.client.patch(path, {"spec": {"replicas": 0}})
    await cluster.client.delete(f"{cluster.jobs}/huge")

    async def let_go() -> bool:  # whether its Job is gone is asked of the API server itself
        return all(pod["metadata"]["name"] != "huge-0" for pod in await cluster.client.list(cluster.pods))

    await cluster.until("the pod of the Job that was deleted is gone", let_go)


async def mount(cluster: RealCluster) -> None:
    """A pod with a claim for a volume that is there, and one for a volume that is never made."""
    modes = {"accessModes": ["ReadWriteOnce"]}
    for name, provisioner in (("rights-local", "kubernetes.io/no-provisioner"), ("rights-made", "none.example.com")):
        body = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        await cluster.client.create("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": name}, **body})
        spec = {**modes, "storageClassName": name, "resources": {"requests": {"storage": "1Mi"}}}
        await cluster.client.create(
            cluster.path("persistentvolumeclaims", "v1"), {"metadata": {"name": name}, "spec": spec}
        )
    volume = {
        **modes,
        "storageClassName": "rights-local",
        "capacity": {"storage": "1Mi"},
        "hostPath": {"path": "/none"},
    }
    await cluster.client.create("/api/v1/persistentvolumes", {"metadata": {"name": "rights"}, "spec": volume})

    async def offered() -> bool:
        found = await cluster.client.get("/api/v1/persistentvolumes/rights")
        return bool(found.get("status", {}).get("phase") == "Available")

    await cluster.until("the volume is offered", offered)
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in ("rights-local", "rights-made")]
    spec = {"schedulerName": "cotide", "containers": [{"name": "c", "image": "none"}], "volumes": volumes}
    await cluster.client.create(cluster.pods, {"metadata": {"name": "mounts"}, "spec": spec})


async def until_filled(cluster: RealCluster) -> None:
    async def filled() -> bool:
        return len(await cluster.placed("cotide.dev/job=filler")) == 2

    await cluster.until("both fillers run", filled)


async def report(cluster: RealCluster) -> None:
    await make(cluster, "Job", "report", template=template("2"))

    async def done() -> bool:
        return await cluster.phase("report") == "Succeeded"

    await cluster.until("the batch Job took a place and is done", done)

"""The operator's ServiceAccount on a server with RBAC: it has the rights that deploy/ names, uses each, and lacks none.

Used rights are those of the server's audit log; had rights are what the server answers to a SelfSubjectRulesReview.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml
from control_plane import ControlPlane, free_port
from real_cluster import DEPLOY, RealCluster

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials

Right = tuple[str, str, str, str]
"""API group, resource with subresource, verb, and the name that it is limited to, empty for none."""

EVERYBODY: Final = {"authorization.k8s.io", "authentication.k8s.io"}
"""Groups of the questions about oneself that every user may ask."""
NOT_USED: Final = {
    ("", "pods", "get", ""),  # only after a binding or a creation whose answer was lost
    ("metrics.k8s.io", "pods", "list", ""),  # metricsSource: kubernetes; nobody serves it here
    ("", "events", "patch", ""),  # the same event about the same object again, 15 s later or more
    ("cotide.dev", "jobs/finalizers", "update", ""),
    ("cotide.dev", "workloads/finalizers", "update", ""),  # asked for by an admission plugin: see below
    ("", "secrets", "update", "cotide-admission-certificate"),  # after two months, when a certificate is renewed
}
SETTINGS: Final = """\
policy: hierarchical
slotSeconds: 20
queue: {{backoffInitialSeconds: 0.2, backoffMaxSeconds: 0.5, unschedulableFlushSeconds: 0.5}}
metricsSource: {{scrape: {{url: "http://127.0.0.1:{port}/metrics"}}, intervalSeconds: 0.25, staleAfterSeconds: 60}}
reclaimed: {{jobPods: false}}
admission: {{enabled: true, port: {admission}}}
"""


def rules(document: dict[str, Any]) -> Iterator[Right]:
    for rule in document.get("rules") or ():
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or [""]:
                        yield group, resource, verb, name


def granted() -> set[Right]:
    """What deploy/ grants to the operator's ServiceAccount."""
    files = [
        DEPLOY / "rbac" / "operator.yaml",
        DEPLOY / "rbac" / "leader-election.yaml",
        DEPLOY / "admission" / "rbac.yaml",
    ]
    return {
        right for file in files for one in yaml.safe_load_all(file.read_text(encoding="utf-8")) for right in rules(one)
    }


async def operator_client(plane: ControlPlane) -> KubeClient:
    token = await plane.token("cotide-system", "cotide-operator")
    return KubeClient(load_credentials(str(plane.kubeconfig("asker", token=token))))


async def test_the_account_has_exactly_what_deploy_names(deployed: ControlPlane) -> None:
    async with await operator_client(deployed) as client:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": "cotide-system"},
        }
        answer = (await client.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body))["status"]
    assert not answer["incomplete"]
    has = {right for right in rules({"rules": answer["resourceRules"]}) if right[0] not in EVERYBODY}
    assert has == granted()


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


def asked(cluster: RealCluster) -> Iterator[tuple[Right, bool, str]]:
    """Yield each right that the operator needed so far, whether it had it, and for what."""
    for line in cluster.plane.audit_log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        about, agent = entry.get("objectRef"), entry.get("userAgent", "")
        if about is None or about.get("apiGroup") in EVERYBODY:
            continue
        resource = about["resource"] + (f"/{about['subresource']}" if about.get("subresource") else "")
        decision = entry.get("annotations", {}).get("authorization.k8s.io/decision")
        right = about.get("apiGroup", ""), resource, entry["verb"], about.get("name", "")
        yield right, decision == "allow", f"{agent} {entry['requestURI']}"


async def test_each_right_is_used_and_none_is_missed(cluster: RealCluster) -> None:
    with contextlib.suppress(ApiError):  # another test's operator may have left it, and then nobody makes it
        await cluster.client.delete("/apis/coordination.k8s.io/v1/namespaces/cotide-system/leases/cotide-operator")
    before = len(list(asked(cluster)))
    named = {(group, resource, verb) for group, resource, verb, name in granted() if name}

    def used() -> set[Right]:
        return {
            (group, resource, verb, name if (group, resource, verb) in named else "")
            for (group, resource, verb, name), _, _ in list(asked(cluster))[before:]
        }

    async with (
        cluster.nodes(2, "--cpu", "4", "--memory", "8Gi", "--speed", "20") as port,
        cluster.operator(SETTINGS.format(port=port, admission=free_port())),
    ):
        await work_through(cluster)
        with contextlib.suppress(pytest.fail.Exception):  # what is missing is named below
            await cluster.until("all rights were used", lambda: granted() - NOT_USED <= used(), USED_SECONDS)
    missed = {(right, why) for right, allowed, why in list(asked(cluster))[before:] if not allowed}
    assert missed == set(), "the operator asked for what deploy/ does not grant"
    assert granted() - used() <= NOT_USED, "deploy/ grants what nobody uses"


async def work_through(cluster: RealCluster) -> None:
    """Give the operator all kinds of its work."""

    def template(cpu: str, seconds: str = "20") -> dict[str, Any]:
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
        return {
            "metadata": {"annotations": {"sim.cotide.dev/lone-seconds": seconds}},
            "spec": {"containers": [container]},
        }

    async def make(kind: str, name: str, **spec: Any) -> None:
        body = {"apiVersion": "cotide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        await cluster.client.create(cluster.path(f"{kind.lower()}s", "cotide.dev/v1alpha1"), body)

    old = {"metadata": {"name": "old", "labels": {"app": "old"}}, "spec": template("100m")["spec"]}
    await cluster.client.create(cluster.pods, old)
    await make("Workload", "old", selector={"matchLabels": {"app": "old"}})
    await make("Workload", "web", replicas=1, template={"spec": template("100m")["spec"]})
    await make("Job", "huge", template=template("100"))
    # Gratis pods fill both nodes; a batch pod then takes the place of one.
    await make("Job", "filler", **{"class": "gratis"}, completions=2, parallelism=2, template=template("3", "100000"))

    async def filled() -> bool:
        return len(await cluster.placed("cotide.dev/job=filler")) == 2

    await cluster.until("both fillers run", filled)
    await make("Job", "report", template=template("2"))

    async def done() -> bool:
        return await cluster.phase("report") == "Succeeded"

    await cluster.until("the batch Job took a place and is done", done)
    await cluster.client.patch(f"{cluster.path('workloads', 'cotide.dev/v1alpha1')}/web", {"spec": {"replicas": 0}})


async def test_who_makes_pods_that_block_their_owner_needs_the_right_to_its_finalizers(cluster: RealCluster) -> None:
    container = {"name": "c", "image": "none"}
    spec = {"template": {"spec": {"containers": [container]}}}
    body = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "metadata": {"name": "owner"}, "spec": spec}
    made = await cluster.client.create(cluster.jobs, body)
    owner = {
        "apiVersion": "cotide.dev/v1alpha1",
        "kind": "Job",
        "name": "owner",
        "uid": made["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    child = {"metadata": {"name": "child", "ownerReferences": [owner]}, "spec": {"containers": [container]}}
    roles = cluster.path("roles", "rbac.authorization.k8s.io/v1")
    may_create = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    may_finalize = {"apiGroups": ["cotide.dev"], "resources": ["jobs/finalizers"], "verbs": ["update"]}
    await cluster.client.create(roles, {"metadata": {"name": "maker"}, "rules": [may_create]})
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "maker"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "maker"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "maker"}],
    }
    await cluster.client.create(cluster.path("rolebindings", f"{group}/v1"), binding)
    maker = cluster.plane.kubeconfig("maker", files=cluster.plane.authority.client("maker"))
    async with KubeClient(load_credentials(str(maker))) as client:

        async def refused_for_its_owner() -> bool:  # and no longer for the pod: rights take a moment to be known
            with pytest.raises(ApiError) as refusal:
                await client.create(cluster.pods, child)
            assert refusal.value.status == 403
            return "cannot set blockOwnerDeletion" in str(refusal.value)

        await cluster.until("the pod is refused for its owner", refused_for_its_owner)
        await cluster.client.patch(f"{roles}/maker", {"rules": [may_create, may_finalize]})

        async def accepted() -> bool:
            with contextlib.suppress(ApiError):
                return bool(await client.create(cluster.pods, child))
            return False

        await cluster.until("the pod is accepted", accepted)

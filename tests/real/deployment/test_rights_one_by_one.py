"""Rights of the operator's ServiceAccount that only an uncommon day needs: each is needed there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

import aiohttp
import pytest
from aiohttp import web
from control_plane import ControlPlane, free_port
from real_cluster import ALONE, RealCluster
from rights import Used

from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_operator.models.learned_store import SAMPLES, ConfigMapStore
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting import event_recorder as recorder_module
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher

ROLE: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cotide-operator"
API_SERVICES: Final = "/apis/apiregistration.k8s.io/v1/apiservices"
SERVICES: Final = "/api/v1/namespaces/cotide-system/services"
CONTAINERS: Final = [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m"}}}]


async def make(cluster: RealCluster, kind: str, name: str) -> None:
    template = {"spec": {"containers": CONTAINERS}}
    spec = {"template": template, **({"replicas": 1} if kind == "Workload" else {})}
    body = {"apiVersion": "cotide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    await cluster.client.create(cluster.path(f"{kind.lower()}s", "cotide.dev/v1alpha1"), body)


@asynccontextmanager
async def without(cluster: RealCluster, resource: str) -> AsyncIterator[None]:
    """Take the rule about a resource out of the operator's role for a while."""
    before = (await cluster.client.get(ROLE))["rules"]
    left = [
        {**rule, "resources": [one for one in rule["resources"] if one != resource]}
        for rule in before
        if rule["resources"] != [resource]
    ]
    assert left != before
    await cluster.client.patch(ROLE, {"rules": left})
    try:
        yield
    finally:
        await cluster.client.patch(ROLE, {"rules": before})


async def may(cluster: RealCluster, resource: str) -> bool:
    """Whether the server lets the operator change the finalizers of a kind: rights take a moment to be known."""
    group, _, subresource = resource.partition("/")
    attributes = {"group": "cotide.dev", "resource": group, "subresource": subresource, "verb": "update"}
    user = "system:serviceaccount:cotide-system:cotide-operator"
    spec = {"user": user, "resourceAttributes": {**attributes, "namespace": cluster.namespace}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await cluster.client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("kind", ["Job", "Workload"])
async def test_children_that_block_their_owners_deletion_need_the_right_to_its_finalizers(
    cluster: RealCluster, kind: str
) -> None:
    plural, resource = f"{kind.lower()}s", f"{kind.lower()}s/finalizers"

    async def children(name: str) -> int:
        pods = await cluster.client.list(cluster.pods)
        return sum(pod["metadata"]["ownerReferences"][0]["name"] == name for pod in pods)

    async with cluster.nodes(1), cluster.operator(ALONE):
        async with without(cluster, resource):

            async def forbidden() -> bool:
                return not await may(cluster, resource)

            await cluster.until("the right is gone", forbidden)
            await make(cluster, kind, "bare")

            async def refused() -> bool:
                path = f"{cluster.path(plural, 'cotide.dev/v1alpha1')}/bare"
                return "cannot set blockOwnerDeletion" in str((await cluster.client.get(path)).get("status"))

            await cluster.until("the status says why there is no pod", refused)
            assert await children("bare") == 0

        async def allowed() -> bool:
            return await may(cluster, resource)

        await cluster.until("the right is back", allowed)
        await make(cluster, kind, "whole")

        async def made() -> bool:
            return await children("whole") == 1

        await cluster.until("the pod is made", made)


@asynccontextmanager
async def metrics_api(plane: ControlPlane, cluster: RealCluster) -> AsyncIterator[None]:
    """A server of the group metrics.k8s.io behind the API server; each pod uses half a cpu and 64 MiB."""

    async def answer(request: web.Request) -> web.Response:
        group = "metrics.k8s.io/v1beta1"
        pods = {"name": "pods", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
        if request.path == f"/apis/{group}":
            return web.json_response({"kind": "APIResourceList", "groupVersion": group, "resources": [pods]})
        if request.path != f"/apis/{group}/pods":
            return web.json_response({}, status=404)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        items = [
            {
                "metadata": {"namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"]},
                "timestamp": now,
                "containers": [{"name": "c", "usage": {"cpu": "500m", "memory": "64Mi"}}],
            }
            for pod in await cluster.client.list(cluster.pods)
        ]
        return web.json_response({"kind": "PodMetricsList", "apiVersion": group, "metadata": {}, "items": items})

    certificate, key = plane.authority.server("metrics")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner, port = web.AppRunner(app, access_log=None, shutdown_timeout=0.1), free_port()
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    service = {"metadata": {"name": "usage"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    spec = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "cotide-system", "name": "usage", "port": port},
    }
    await cluster.client.create(SERVICES, service)
    try:
        await cluster.client.create(API_SERVICES, {"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": spec})
        yield
    finally:
        await cluster.client.delete(f"{API_SERVICES}/v1beta1.metrics.k8s.io")
        await cluster.client.delete(f"{SERVICES}/usage")
        await runner.cleanup()


async def test_an_event_that_comes_again_is_counted_up_by_the_right_to_patch_it(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "REPEAT_SECONDS", 0.0)
    used, right = Used(cluster), ("", "events", "patch", "")
    token = await cluster.plane.token("cotide-system", "cotide-operator")
    mine = load_credentials(str(cluster.plane.kubeconfig("recorder", token=token)))
    async with KubeClient(mine) as client:
        dispatcher = ApiDispatcher(lambda: False)
        writing = asyncio.create_task(dispatcher.run())
        recorder = recorder_module.EventRecorder(client, dispatcher, Metrics())
        for count in (1, 2):
            recorder.failed(f"{cluster.namespace}/web", "1", "0/2 nodes are available")

            async def is_said(count: int = count) -> bool:
                events = await cluster.client.list(cluster.path("events"))
                return [event["count"] for event in events if event["reason"] == "FailedScheduling"] == [count]

            await cluster.until(f"there is one event, counted {count}", is_said)
        writing.cancel()
    assert right in used.rights()
    assert used.missed() == set()


async def test_usage_comes_from_the_metrics_api_by_the_right_to_list_it(cluster: RealCluster) -> None:
    used, right = Used(cluster), ("metrics.k8s.io", "pods", "list", "")
    settings = (
        f"{ALONE}policy: hierarchical\nslotSeconds: 1\nmetricsSource: {{kubernetes: {{}}, intervalSeconds: 0.5}}\n"
    )
    async with metrics_api(cluster.plane, cluster), cluster.nodes(1, "--cpu", "4"):
        web_pod = {"metadata": {"name": "web"}, "spec": {"schedulerName": "cotide", "containers": CONTAINERS}}
        await cluster.client.create(cluster.pods, web_pod)
        async with cluster.operator(settings) as operator:
            url = operator.text().split("metrics, health and board on ")[1].split()[0]

            async def measured() -> bool:
                async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as page:
                    return "cotide_metrics_source_up 1.0" in await page.text()

            await cluster.until("usage is read", measured)
    assert right in used.rights()
    assert used.missed() == set()


async def test_the_board_is_for_those_whom_the_cluster_lets_see_it(cluster: RealCluster) -> None:
    used = Used(cluster)
    asked = {
        ("authentication.k8s.io", "tokenreviews", "create", ""),
        ("authorization.k8s.io", "subjectaccessreviews", "create", ""),
    }
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cotide-debug"}
    tokens = {
        "nobody": "",
        "forged": "forged",
        "stranger": await cluster.plane.token("default", "default"),
        "reader": await cluster.plane.token("kube-system", "default"),
    }
    async with cluster.nodes(1), cluster.operator(ALONE) as operator, aiohttp.ClientSession() as session:
        url = operator.text().split("metrics, health and board on ")[1].split()[0]
        body = {"metadata": {"name": "cotide-debug"}, "roleRef": role, "subjects": [subject]}
        await cluster.client.create(binding, body)
        try:

            async def status(who: str) -> int:
                headers = {"Authorization": f"Bearer {tokens[who]}"} if tokens[who] else {}
                async with session.get(f"{url}/debug/board", headers=headers) as answer:
                    return answer.status

            async def reader_is_in() -> bool:
                return await status("reader") == 200

            await cluster.until("the binding is known", reader_is_in)
            assert [await status(who) for who in tokens] == [401, 401, 403, 200]
        finally:
            await cluster.client.delete(f"{binding}/cotide-debug")
    assert asked <= used.rights()
    assert used.missed() == set()


async def test_what_was_learned_is_kept_found_replaced_and_taken_away_with_the_operators_rights(
    cluster: RealCluster,
) -> None:
    used = Used(cluster)
    token = await cluster.plane.token("cotide-system", "cotide-operator")
    async with KubeClient(load_credentials(str(cluster.plane.kubeconfig("learner", token=token)))) as client:
        store = ConfigMapStore(client, "cotide-system")
        for content in (b"first", b"second"):
            await store.save(SAMPLES, "team", {"samples.json": content})
            assert await store.load(SAMPLES, "team") == {"samples.json": content}
        assert await store.learners() == ["team"]
        await store.delete("team")
        assert await store.learners() == []
    verbs = ("get", "list", "create", "update", "delete")
    await cluster.until(
        "the audit log holds them all",
        lambda: {("", "configmaps", verb, "") for verb in verbs} <= used.rights(),
    )
    assert used.missed() == set()

"""The client against the embedded API server, with faults: what the scripted server can't show."""

import asyncio
import random

import pytest
import yaml
from manifests import node_manifest, pod_manifest

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.backoff import Backoff
from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_kube.objects import PodObject
from cotide_kube.reflector import Reflector
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.server import ApiServer

PODS = "/api/v1/namespaces/default/pods"
QUICK = Backoff(initial_seconds=0.001, cap_seconds=0.01)


@pytest.mark.parametrize("tls", [False, True])
async def test_the_servers_own_kubeconfig_lets_us_in(tmp_path, tls):
    async with ApiServer(token="sesame", tls=tls) as server:
        path = tmp_path / "config"
        path.write_text(server.kubeconfig())
        async with KubeClient(load_credentials(str(path)), backoff=QUICK) as client:
            created = await client.create(PODS, pod_manifest("web"))
            assert created["metadata"]["uid"]
        document = yaml.safe_load(server.kubeconfig())
        document["users"][0]["user"]["token"] = "wrong"
        path.write_text(yaml.safe_dump(document))
        async with KubeClient(load_credentials(str(path)), backoff=QUICK) as client:
            with pytest.raises(ApiError, match="credentials are not accepted"):
                await client.get(f"{PODS}/web")


async def test_a_server_whose_certificate_nobody_vouches_for_is_refused_at_once(tmp_path):
    async with ApiServer(tls=True) as server:
        document = yaml.safe_load(server.kubeconfig())
        cluster = document["clusters"][0]["cluster"]
        del cluster["certificate-authority-data"]
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(document))
        slow = Backoff(initial_seconds=60.0, cap_seconds=60.0)
        async with KubeClient(load_credentials(str(path)), backoff=slow) as client, asyncio.timeout(10):
            with pytest.raises(ClusterError, match="its certificate is not trusted"):
                await client.get(PODS)
        cluster["insecure-skip-tls-verify"] = True
        path.write_text(yaml.safe_dump(document))
        async with KubeClient(load_credentials(str(path)), backoff=QUICK) as client:
            assert await client.list(PODS) == []


async def test_objects_are_created_read_patched_replaced_and_deleted():
    async with ApiServer() as server, KubeClient(load(server), backoff=QUICK) as client:
        created = await client.create(PODS, pod_manifest("web"))
        patched = await client.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}})
        assert patched["metadata"]["labels"] == {"a": "b"}
        with pytest.raises(ApiError) as stale:
            await client.replace(f"{PODS}/web", created)
        assert (stale.value.status, stale.value.reason) == (409, "Conflict")
        assert [one["metadata"]["name"] for one in await client.list(PODS, {"labelSelector": "a=b"})] == ["web"]
        await client.delete(f"{PODS}/web", grace_seconds=0)
        with pytest.raises(ApiError) as gone:
            await client.get(f"{PODS}/web")
        assert gone.value.status == 404


async def test_a_pod_is_bound_once_and_only_the_pod_that_was_meant():
    async with ApiServer() as server, KubeClient(load(server), backoff=QUICK) as client:
        await client.create("/api/v1/nodes", node_manifest("n1"))
        uid = (await client.create(PODS, pod_manifest("web")))["metadata"]["uid"]
        assert (await client.bind("default", "web", "another-uid", "n1")).code == 409
        assert (await client.bind("default", "web", uid, "n1", {"cotide.dev/decision": "why"})).ok
        assert (await client.bind("default", "web", uid, "n2")).code == 409
        assert (await client.bind("default", "absent", uid, "n1")).code == 404
        found = await client.get(f"{PODS}/web")
        assert found["spec"]["nodeName"] == "n1"
        assert found["metadata"]["annotations"]["cotide.dev/decision"] == "why"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_binding_survives_passing_faults(status):
    async with ApiServer() as server, KubeClient(load(server), backoff=QUICK) as client:
        await client.create("/api/v1/nodes", node_manifest("n1"))
        uid = (await client.create(PODS, pod_manifest("web")))["metadata"]["uid"]
        fault = server.faults.add(Fault(status=status, method="POST", path="binding$", count=2))
        assert (await client.bind("default", "web", uid, "n1")).ok
        assert fault.met == 2


async def test_a_budget_forbids_an_eviction_with_429():
    async with ApiServer() as server, KubeClient(load(server), backoff=QUICK) as client:
        labelled = pod_manifest("web")
        labelled["metadata"]["labels"] = {"app": "web"}
        uid = (await client.create(PODS, labelled))["metadata"]["uid"]
        await client.create("/api/v1/nodes", node_manifest("n1"))
        await client.bind("default", "web", uid, "n1")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await client.patch(f"{PODS}/web/status", {"status": ready})
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        await client.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
        assert (await client.evict("default", "web", uid)).code == 429


async def test_a_reflector_converges_whatever_happens_to_its_watches():
    async with ApiServer() as server, KubeClient(load(server), backoff=QUICK) as client:
        following = Reflector(client, "/api/v1/pods", PodObject, page_limit=7, backoff=QUICK, rng=random.Random(2))
        names: set[str] = set()
        synced = asyncio.Event()

        async def follow():
            async for change in following:
                if change.kind == "SYNCED":
                    synced.set()
                elif change.kind == "DELETED":
                    names.discard(change.object.metadata.name)
                else:
                    names.add(change.object.metadata.name)

        task = asyncio.create_task(follow())
        expected: set[str] = set()
        await asyncio.wait_for(synced.wait(), 10)
        for number in range(120):
            await client.create(PODS, pod_manifest(f"p{number}"))
            expected.add(f"p{number}")
            if number % 3 == 2:
                await client.delete(f"{PODS}/p{number - 1}", grace_seconds=0)
                expected.discard(f"p{number - 1}")
            if number % 20 == 10:
                server.drop_watches(abruptly=number % 40 == 10)
            if number % 30 == 15:
                server.faults.add(Fault(status=410, method="WATCH", path="/pods$"))
                server.drop_watches()
            if number % 50 == 5:
                server.faults.add(Fault(status=500, path="/api/v1/pods$"))
        async with asyncio.timeout(10):
            while names != expected:
                await asyncio.sleep(0.01)
        assert following.lists > 1
        assert following.malformed == 0
        task.cancel()


def load(server):
    from cotide_kube.credentials import Credentials

    return Credentials(server.url)

"""Fake nodes against the embedded API server, over real HTTP."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from manifests import pod_manifest
from prometheus_client.parser import text_string_to_metric_families

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.backoff import Backoff
from cotide_kube.client import PATCH_TYPES, KubeClient
from cotide_kube.credentials import Credentials
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import Fleet, FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
DEADLINE_SECONDS = 20.0
QUICK = Backoff(initial_seconds=0.001, cap_seconds=0.01)


def settings(**more):
    return FleetSettings(
        **({"interference": GeneratedInterference(), "count": 2, "speed": 20.0, "metrics_port": 0} | more)
    )


@asynccontextmanager
async def cluster(**more):
    """A server, a client and a ready fleet."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiServer())
        client = await stack.enter_async_context(KubeClient(Credentials(server.url), backoff=QUICK))
        fleet = await stack.enter_async_context(running_fleet(client, settings(**more)))
        yield server, client, fleet


def pod(name, cpu="1", isolated_seconds=4, annotations=None, labels=None, **spec):
    """A batch pod that ends by itself after so long alone on a node."""
    notes = {"sim.cotide.dev/lone-seconds": str(isolated_seconds)} if isolated_seconds is not None else {}
    spec = {"restartPolicy": "Never", **spec}
    return pod_manifest(name, cpu, cls="batch", labels=labels, annotations=notes | (annotations or {}), spec=spec)


def service(name, rate, cpu="1"):
    notes = {"sim.cotide.dev/rates": str(rate)}
    return pod(name, cpu, None, notes, {"cotide.dev/class": "online"}, restartPolicy="Always")


async def bound(client, body, node="fake-0"):
    created = await client.create(PODS, body)
    answer = await client.bind("default", created["metadata"]["name"], created["metadata"]["uid"], node)
    assert answer.ok, answer
    return created


async def until(read, holds):
    """Ask until the answer pleases, and return it; fails with the last answer after a bounded time."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        found = await read()
        if holds(found):
            return found
        assert time.monotonic() < deadline, f"still {found}"
        await asyncio.sleep(0.01)


async def in_phase(client, name, phase):
    return await until(lambda: client.get(f"{PODS}/{name}"), lambda found: found["status"].get("phase") == phase)


async def gone(client, name):
    async def look():
        try:
            return await client.get(f"{PODS}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    await until(look, lambda found: found is None)


async def page(fleet, path):
    url = f"http://127.0.0.1:{fleet.metrics_port}/{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.text()


async def metrics(fleet):
    text = await page(fleet, "metrics")
    return {
        (sample.name, sample.labels.get("pod") or sample.labels.get("node")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_nodes_are_registered_ready_and_marked_as_fake():
    async with cluster(shape=NodeShape(millicores=4000, memory_bytes=2**33, labels={"zone": "z1"})) as (_, client, _):
        nodes = await client.list("/api/v1/nodes", {"labelSelector": "cotide.dev/fake-node=true,zone=z1"})
        assert [node["metadata"]["name"] for node in nodes] == ["fake-0", "fake-1"]
        assert nodes[0]["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi", "pods": "110"}
        conditions = {one["type"]: one["status"] for one in nodes[0]["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert nodes[0]["metadata"]["labels"]["kubernetes.io/hostname"] == "fake-0"


async def test_a_bound_pod_runs_and_then_succeeds():
    async with cluster() as (_, client, _):
        await bound(client, pod("job"))
        running = await in_phase(client, "job", "Running")
        assert running["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        assert running["status"]["podIP"]
        done = await in_phase(client, "job", "Succeeded")
        assert done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
        conditions = {one["type"]: one["status"] for one in done["status"]["conditions"]}
        assert conditions == {
            "PodScheduled": "True",
            "Initialized": "True",
            "ContainersReady": "False",
            "Ready": "False",
        }


def readiness(found):
    return {one["type"]: one["status"] for one in found["status"]["conditions"]}["Ready"]


async def test_a_pod_that_the_node_controller_called_unready_is_ready_again():
    """Ten seconds of a clock that is twenty times as fast are half a second."""
    async with cluster() as (_, client, _):
        await bound(client, pod("web", isolated_seconds=1000))
        await in_phase(client, "web", "Running")
        taken = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        await client.request("PATCH", f"{PODS}/web/status", taken, content_type=PATCH_TYPES["strategic"])
        assert readiness(await client.get(f"{PODS}/web")) == "False"
        await until(lambda: client.get(f"{PODS}/web"), lambda found: readiness(found) == "True")


async def test_a_pod_that_does_not_fit_is_out_of_cpu():
    async with cluster() as (_, client, _):
        await bound(client, pod("large", cpu="7", isolated_seconds=1000))
        await in_phase(client, "large", "Running")
        await bound(client, pod("more", cpu="2"))
        refused = await in_phase(client, "more", "Failed")
        assert refused["status"]["reason"] == "OutOfcpu"
        assert "requested: 2000, used: 7000, capacity: 8000" in refused["status"]["message"]


async def test_a_failing_pod_fails():
    async with cluster() as (_, client, _):
        await bound(client, pod("bad", annotations={"sim.cotide.dev/exit-code": "2"}))
        failed = await in_phase(client, "bad", "Failed")
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 2


async def test_deleted_and_evicted_pods_stop_and_go():
    async with cluster() as (_, client, fleet):
        for name in ("deleted", "evicted"):
            await bound(client, pod(name, isolated_seconds=1000))
        for name in ("deleted", "evicted"):
            await in_phase(client, name, "Running")
        await client.delete(f"{PODS}/deleted")
        assert (await client.evict("default", "evicted")).ok
        await gone(client, "deleted")
        await gone(client, "evicted")

        async def residents():
            return len(fleet.residents)

        await until(residents, lambda count: count == 0)


async def test_contention_slows_batch_and_raises_latency():
    async with cluster(shape=NodeShape(millicores=2000)) as (_, client, fleet):
        await bound(client, service("web-calm", 120_000, "500m"), "fake-0")
        await bound(client, service("web-busy", 120_000, "500m"), "fake-1")
        for name in ("web-calm", "web-busy"):
            await in_phase(client, name, "Running")
        await bound(client, pod("beside", "1500m", 1000, {"cotide.dev/type": "wordcount"}), "fake-1")
        await in_phase(client, "beside", "Running")
        latency = "cotide_sim_service_latency_p95_milliseconds"
        found = await until(
            lambda: metrics(fleet),
            lambda page: page.get((latency, "web-busy"), 0) > page.get((latency, "web-calm"), float("inf")),
        )
        assert found["cotide_sim_service_requests_per_second", "web-busy"] == pytest.approx(120_000)
        assert found["cotide_sim_node_cpu_usage_millicores", "fake-1"] > 0
        # Alone, a second of lone work is done each second; beside a busy service it is less.
        started = fleet.clock.now()
        before = left(fleet, "default/beside", started)

        async def passed():
            return fleet.clock.now() - started

        await until(passed, lambda seconds: seconds > 10)
        ended = fleet.clock.now()
        assert 0 < before - left(fleet, "default/beside", ended) < 0.9 * (ended - started)


def left(fleet, key, now):
    assert fleet.park.advance(now) == []
    return fleet.park.remaining_lone_seconds(key)


async def test_a_restarted_fleet_adopts_what_runs_and_finishes_it():
    async with ApiServer() as server, KubeClient(Credentials(server.url), backoff=QUICK) as client:
        async with running_fleet(client, settings()):
            await bound(client, pod("long", isolated_seconds=30))
            before = await in_phase(client, "long", "Running")
        assert (await client.get(f"{PODS}/long"))["status"]["phase"] == "Running"
        async with running_fleet(client, settings()) as fleet:
            done = await in_phase(client, "long", "Succeeded")
            assert (fleet.residents.started_total, fleet.residents.finished_total) == (0, 1)
        assert done["status"]["startTime"] == before["status"]["startTime"]
        assert done["metadata"]["uid"] == before["metadata"]["uid"]


async def test_leases_are_renewed():
    async with cluster(renew_seconds=0.05) as (_, client, _):
        first = (await client.get(f"{LEASES}/fake-1"))["spec"]["renewTime"]
        await until(lambda: client.get(f"{LEASES}/fake-1"), lambda found: found["spec"]["renewTime"] > first)


async def test_cleanup_takes_nodes_and_leases_away():
    async with ApiServer() as server, KubeClient(Credentials(server.url), backoff=QUICK) as client:
        async with running_fleet(client, settings(cleanup=True)):
            assert len(await client.list("/api/v1/nodes")) == 2
        assert await client.list("/api/v1/nodes") == []
        assert await client.list(LEASES) == []


async def test_a_real_node_of_that_name_is_left_alone():
    async with ApiServer() as server, KubeClient(Credentials(server.url), backoff=QUICK) as client:
        await client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fake-1"}})
        with pytest.raises(ClusterError, match="node fake-1 exists and is not one of ours"):
            async with running_fleet(client, settings()):
                pass
        assert "labels" not in (await client.get("/api/v1/nodes/fake-1"))["metadata"]


async def test_a_deleted_node_takes_its_pods_with_it():
    async with cluster() as (_, client, _):
        await bound(client, pod("orphan", isolated_seconds=1000))
        await in_phase(client, "orphan", "Running")
        await client.delete("/api/v1/nodes/fake-0")
        await gone(client, "orphan")


async def test_faults_of_the_server_lose_no_status():
    async with cluster() as (server, client, _):
        server.faults.add(Fault(status=500, method="PATCH", path="/status$", count=8))
        server.faults.add(Fault(status=429, method="PATCH", path="/status$", count=2, retry_after_seconds=1))
        await bound(client, pod("job", isolated_seconds=1))
        server.drop_watches(abruptly=True)
        await bound(client, pod("next", isolated_seconds=1))
        await in_phase(client, "job", "Succeeded")
        await in_phase(client, "next", "Succeeded")


async def test_a_server_that_is_not_there_is_one_clear_error():
    async with ApiServer() as server:
        url = server.url
    async with KubeClient(Credentials(url), backoff=QUICK) as client:
        with pytest.raises(ClusterError, match="is unreachable"):
            async with running_fleet(client, settings()):
                pass


async def test_a_fleet_can_be_stopped_while_it_registers():
    async with ApiServer() as server, KubeClient(Credentials(server.url), backoff=QUICK) as client:
        slow = server.faults.add(Fault(method="POST", path="/nodes$", delay_seconds=60.0, count=-1))
        fleet, stop = Fleet(client, settings(count=40, cleanup=True)), asyncio.Event()
        running = asyncio.create_task(fleet.run(stop))

        async def asked():
            return slow.met

        await until(asked, lambda count: count > 0)
        stop.set()
        async with asyncio.timeout(5):
            await running
        assert await client.list("/api/v1/nodes") == []


async def test_health_is_told_once_all_pods_are_known():
    async with cluster() as (_, _, fleet):
        assert await page(fleet, "healthz") == "ok\n"


async def test_a_server_that_restarts_finds_its_nodes_alive(tmp_path):
    data = tmp_path / "objects.sqlite"
    async with AsyncExitStack() as stack:
        first = ApiServer(data=data)
        await first.start()
        client = await stack.enter_async_context(KubeClient(Credentials(first.url), backoff=QUICK))
        fleet = await stack.enter_async_context(running_fleet(client, settings()))
        await bound(client, pod("across", isolated_seconds=8))
        await in_phase(client, "across", "Running")
        await first.stop()

        async def ended():
            return fleet.residents.finished_total

        # The pod ends while nobody can be told.
        await until(ended, lambda count: count == 1)
        second = await stack.enter_async_context(ApiServer(data=data, port=first.port))
        assert second.url == first.url
        await in_phase(client, "across", "Succeeded")
        await bound(client, pod("after", isolated_seconds=1), "fake-1")
        await in_phase(client, "after", "Succeeded")


RECLAIMED = "cotide.dev/reclaimed-cpu"


def reclaiming(name, amount, isolated_seconds=4):
    body = pod(name, isolated_seconds=isolated_seconds)
    body["spec"]["containers"][0]["resources"] = {key: {RECLAIMED: amount} for key in ("limits", "requests")}
    return body


async def publish(client, amount, kind="strategic"):
    """Publish reclaimed capacity on the first node, and a condition beside it."""
    status = {"capacity": {RECLAIMED: amount}, "allocatable": {RECLAIMED: amount}}
    if kind == "strategic":
        status["conditions"] = [{"type": "cotide.dev/ForecastTrusted", "status": "True"}]
    await client.patch("/api/v1/nodes/fake-0/status", {"status": status}, kind)


async def offered(fleet, amount):
    """Wait until the kubelet itself knows what its node offers."""
    rooms = fleet.residents._rooms  # a kubelet's own view shows nowhere else

    async def look():
        return rooms["fake-0"].allocatable.get(RECLAIMED)

    await until(look, lambda found: found == amount)


async def test_reclaimed_capacity_that_others_publish_outlives_heartbeats_and_a_restart_of_the_kubelets():
    async with cluster() as (_, client, fleet):
        await publish(client, "500")
        await offered(fleet, 500)
        await fleet._registration._report_status("fake-0")  # due every five minutes
        after = settings(shape=NodeShape(millicores=9000))
        async with running_fleet(client, after) as second:
            await offered(second, 500)
        status = (await client.get("/api/v1/nodes/fake-0"))["status"]
        assert status["allocatable"] == {"cpu": "9", "memory": "32Gi", "pods": "110", RECLAIMED: "500"}
        assert {one["type"] for one in status["conditions"]} >= {"Ready", "cotide.dev/ForecastTrusted"}


async def test_a_kubelet_takes_pods_up_to_what_is_published_and_shrinking_stops_none_that_runs():
    async with cluster() as (_, client, fleet):
        await publish(client, "500", "merge")
        await offered(fleet, 500)
        await bound(client, reclaiming("first", "400", isolated_seconds=8))
        await in_phase(client, "first", "Running")
        await bound(client, reclaiming("second", "200"))
        status = (await in_phase(client, "second", "Failed"))["status"]
        assert status["reason"] == "OutOfcotide.dev/reclaimed-cpu"
        assert "requested: 200, used: 400, capacity: 500" in status["message"]
        await publish(client, "100")
        await offered(fleet, 100)
        await in_phase(client, "first", "Succeeded")


async def test_a_pod_works_with_the_reclaimed_cpu_that_it_asks_for():
    async with cluster() as (_, client, fleet):
        await publish(client, "8000")
        await offered(fleet, 8000)
        for name in ("a", "b", "c"):
            await bound(client, reclaiming(name, "2000", isolated_seconds=1000))
        for name in ("a", "b", "c"):
            await in_phase(client, name, "Running")
        await until(
            lambda: metrics(fleet), lambda found: found["cotide_sim_node_cpu_usage_millicores", "fake-0"] == 6000.0
        )

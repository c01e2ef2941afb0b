import asyncio
from contextlib import asynccontextmanager

from cotide_kube.backoff import Backoff
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_kube.transport import MAX_TRIES
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.kubelets.actions import RemovePod, WriteStatus
from cotide_sim.kubelets.writer import PodWriter

PODS = "/api/v1/namespaces/default/pods"


@asynccontextmanager
async def writing(server):
    backoff = Backoff(initial_seconds=0.001, cap_seconds=0.002)
    async with KubeClient(Credentials(server.url), backoff=backoff) as client:
        writer = PodWriter(client)
        task = asyncio.create_task(writer.run())
        yield client, writer
        task.cancel()


async def created(client, name="a"):
    spec = {"containers": [{"name": "c", "image": "i"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return (await client.create(PODS, body))["metadata"]["uid"]


def status(name, uid, message):
    return WriteStatus(f"default/{name}", uid, {"phase": "Running", "message": message})


async def written(writer):
    async with asyncio.timeout(20):
        await writer.drained()


async def test_a_status_is_kept_through_an_outage_that_outlasts_the_retries():
    async with ApiServer() as server, writing(server) as (client, writer):
        uid = await created(client)
        fault = server.faults.add(Fault(status=500, method="PATCH", count=MAX_TRIES + 1))
        writer.submit([status("a", uid, "kept")])
        await written(writer)
        assert fault.met == MAX_TRIES + 1
        assert (await client.get(f"{PODS}/a"))["status"]["message"] == "kept"
        assert writer.dropped_total == 0


async def test_while_one_status_is_on_its_way_only_the_newest_waits():
    async with ApiServer() as server, writing(server) as (client, writer):
        uid = await created(client)
        server.faults.add(Fault(method="PATCH", delay_seconds=0.1, count=1))
        writer.submit([status("a", uid, "first")])
        while writer._queue.qsize():
            await asyncio.sleep(0)
        writer.submit([status("a", uid, f"later {number}") for number in range(5)])
        await written(writer)
        assert (await client.get(f"{PODS}/a"))["status"]["message"] == "later 4"
        assert writer.written_total == 2


async def test_a_status_of_a_pod_that_is_another_by_now_is_dropped():
    async with ApiServer() as server, writing(server) as (client, writer):
        await created(client)
        writer.submit([status("a", "an-older-uid", "wrong"), status("absent", "u", "gone")])
        await written(writer)
        assert writer.dropped_total == 2
        assert "message" not in (await client.get(f"{PODS}/a"))["status"]


async def test_a_removal_comes_after_the_last_words_which_a_finalizer_keeps():
    async with ApiServer() as server, writing(server) as (client, writer):
        uid = await created(client)
        await client.patch(f"{PODS}/a", {"metadata": {"finalizers": ["cotide.dev/job-tracking"]}})
        writer.submit([status("a", uid, "last words"), RemovePod("default/a", uid)])
        await written(writer)
        (left,) = await client.list(PODS)
        assert left["status"]["message"] == "last words"
        assert left["metadata"]["deletionGracePeriodSeconds"] == 0
        await client.patch(f"{PODS}/a", {"metadata": {"finalizers": None}})
        assert await client.list(PODS) == []


async def test_a_removal_never_hits_a_new_pod_of_that_name():
    async with ApiServer() as server, writing(server) as (client, writer):
        await created(client)
        writer.submit([RemovePod("default/a", "an-older-uid")])
        await written(writer)
        assert len(await client.list(PODS)) == 1


async def test_many_pods_are_written_side_by_side_and_none_is_forgotten():
    async with ApiServer() as server, writing(server) as (client, writer):
        uids = {f"p{number}": await created(client, f"p{number}") for number in range(60)}
        for round_number in range(3):
            writer.submit([status(name, uid, f"round {round_number}") for name, uid in uids.items()])
            await asyncio.sleep(0)
        await written(writer)
        found = await client.list(PODS)
        assert {one["status"]["message"] for one in found} == {"round 2"}

"""What is written for the claims of a pod before it is bound, what is waited for, and when it is let go."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from eviction_bench import at_work

from cotide_core.errors import ClusterError
from cotide_core.instructions import Bind
from cotide_kube.answers import Answer, ApiError
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.object_cache import TYPES, Kind, ObjectCache
from cotide_operator.scheduling.binder import Binder, BindReport, Report
from cotide_operator.scheduling.evictor import Evictor
from cotide_operator.scheduling.nominator import Nominator
from cotide_operator.scheduling.volume_binder import REASON, VolumeBinder
from cotide_operator.translation.volumes.claims import SELECTED_NODE
from cotide_operator.translation.volumes.reader import VolumeReader

BOUND = "pv.kubernetes.io/bind-completed"


class Cluster:
    """Stands for the client and the watch: a patch is shown in the cache when it was accepted."""

    def __init__(self, timeout_seconds: float = 5.0) -> None:
        self.cache = ObjectCache()
        self.reader = VolumeReader(self.cache)
        self.cache.subscribe(lambda kind, key: list(self.reader.concerned(kind, key)) and None)
        self.patched: list[tuple[str, Any]] = []
        self.bound: list[tuple[str, str]] = []
        self.refuse = 0
        self.silent = False
        self.version = 0
        self.objects: dict[tuple[Kind, str], dict[str, Any]] = {}
        self.reports: list[Report] = []
        self.asked = asyncio.Event()
        client: Any = self
        evictor = Evictor(client, self.cache, Nominator(client, client, self.cache, DecisionStore()))
        volumes = VolumeBinder(client, self.cache, self.reader, timeout_seconds)
        self.binder = Binder(client, self.cache, [self._take], evictor, concurrency=2, volumes=volumes)
        for name in ("a", "b"):
            self.put("nodes", name, metadata={"labels": {"host": name}})
        for name, provisioner in (("made", "disk"), ("local", "kubernetes.io/no-provisioner")):
            self.put("storageclasses", name, provisioner=provisioner, volumeBindingMode="WaitForFirstConsumer")

    def put(self, kind: Kind, name: str, **body: Any) -> None:
        self.version += 1
        metadata = {"uid": f"u-{name}", **body.pop("metadata", {}), "name": name, "resourceVersion": str(self.version)}
        if kind in ("pods", "persistentvolumeclaims"):
            metadata["namespace"] = "ns"
        self.objects[kind, name] = {"metadata": metadata, **body}
        self.cache.apply(kind, "MODIFIED", msgspec.convert(self.objects[kind, name], TYPES[kind]))

    def claim(self, name: str, storage_class: str, **annotations: str) -> None:
        spec = {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"]}
        self.put("persistentvolumeclaims", name, metadata={"annotations": annotations}, spec=spec)

    def pod(self, *claims: str, name: str = "p") -> None:
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        self.put("pods", name, spec={"schedulerName": "cotide", "volumes": volumes})

    def finish(self, name: str, volume: str, hosts: list[str] | None = None) -> None:
        """What a provisioner and the volume controller do."""
        reference = {"namespace": "ns", "name": name, "uid": f"u-{name}"}
        spec: dict[str, Any] = {"claimRef": reference, "capacity": {"storage": "1Gi"}}
        if hosts is not None:
            expression = {"key": "host", "operator": "In", "values": hosts}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        self.put("persistentvolumes", volume, spec=spec, status={"phase": "Bound"})
        known = self.objects["persistentvolumeclaims", name]
        annotations = {**known["metadata"]["annotations"], BOUND: "yes"}
        spec = {**known["spec"], "volumeName": volume}
        self.put("persistentvolumeclaims", name, metadata={"annotations": annotations}, spec=spec)

    def selected(self, name: str) -> str | None:
        found: str | None = self.objects["persistentvolumeclaims", name]["metadata"]["annotations"].get(SELECTED_NODE)
        return found

    async def patch(self, path: str, patch: Any) -> None:
        await asyncio.sleep(0)
        kind: Kind = "persistentvolumeclaims" if "claims/" in path else "persistentvolumes"
        known = self.objects[kind, path.rpartition("/")[2]]
        stale = known["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"]
        if self.silent:
            raise ClusterError("no answer")
        if self.refuse or stale:
            raise ApiError(self.refuse or 409, "Conflict", "it changed")
        annotations = {**known["metadata"].get("annotations", {}), **patch["metadata"]["annotations"]}
        metadata = {**known["metadata"], "annotations": {k: v for k, v in annotations.items() if v is not None}}
        spec = {**known["spec"], **patch.get("spec", {})}
        self.put(kind, known["metadata"]["name"], **{**known, "metadata": metadata, "spec": spec})
        self.patched.append((path.rpartition("/")[2], patch))

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Any, labels: Any) -> Answer:
        self.bound.append((name, node))
        return Answer(201)

    def _take(self, report: Report) -> None:
        self.reports.append(report)
        self.asked.set()

    async def until(self, what: Any) -> None:
        async with asyncio.timeout(5):
            while not what():
                await asyncio.sleep(0)

    async def report(self) -> BindReport:
        async with asyncio.timeout(5):
            await self.asked.wait()
        self.asked.clear()
        found = self.reports.pop()
        assert isinstance(found, BindReport)
        return found

    def decide(self, name: str = "p", node: str = "a") -> None:
        self.binder.submit(Bind(f"ns/{name}", f"u-{name}", node, "because"))

    async def select(self) -> None:
        """Decide on a pod with a claim `c` whose volume is still to be made; wait until the claim names the node."""
        self.claim("c", "made")
        self.pod("c")
        self.decide()
        await self.until(lambda: self.selected("c") == "a")


async def test_a_claim_is_told_its_node_and_the_pod_is_bound_when_its_volume_is_there() -> None:
    cluster = Cluster()
    async with at_work(cluster.binder):
        await cluster.select()
        assert cluster.bound == []
        assert not cluster.binder.busy  # nothing that is decided waits for it
        cluster.finish("c", "v", ["a"])
        assert (await cluster.report()).bound
    assert cluster.bound == [("p", "a")]


async def test_a_restart_waits_on_for_the_node_that_the_claim_names_and_writes_nothing() -> None:
    cluster = Cluster()
    async with at_work(cluster.binder):
        cluster.claim("c", "made", **{SELECTED_NODE: "a"})
        cluster.pod("c")
        cluster.decide()
        await cluster.until(lambda: cluster.binder._preparing)
        cluster.finish("c", "v", ["a"])
        assert (await cluster.report()).bound
    assert cluster.patched == []


async def test_volumes_that_are_there_are_reserved_one_for_each_claim() -> None:
    cluster = Cluster()
    async with at_work(cluster.binder):
        for name in ("v1", "v2"):
            local_volume(cluster, name)
        for name in ("c", "d"):
            cluster.claim(name, "local")
            cluster.pod(name, name=f"of-{name}")
            cluster.decide(f"of-{name}")
        await cluster.until(lambda: len(cluster.patched) == 2)
        written = {name: patch["spec"]["claimRef"]["name"] for name, patch in cluster.patched}
        assert written == {"v1": "c", "v2": "d"}
        cluster.finish("c", "v1")
        assert (await cluster.report()).bound


def local_volume(cluster: Cluster, name: str) -> None:
    spec = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    cluster.put("persistentvolumes", name, spec=spec, status={"phase": "Available"})


async def test_a_volume_of_whose_reservation_nothing_was_heard_goes_to_the_next_claim() -> None:
    cluster = Cluster()
    async with at_work(cluster.binder):
        local_volume(cluster, "v")
        for name in ("c", "d"):
            cluster.claim(name, "local")
            cluster.pod(name, name=f"of-{name}")
        cluster.silent = True
        cluster.decide("of-c")
        report = await cluster.report()
        assert (report.bound, report.retry) == (False, True)
        cluster.silent = False
        for kind, key in (("pods", "ns/of-c"), ("persistentvolumeclaims", "ns/c")):
            cluster.cache.apply(kind, "DELETED", cluster.cache.objects(kind)[key])
        cluster.decide("of-d")
        await cluster.until(lambda: cluster.patched)
        assert cluster.patched[0][1]["spec"]["claimRef"]["name"] == "d"


async def test_a_volume_that_goes_while_another_is_reserved_sets_no_pod_aside() -> None:
    cluster = Cluster()
    async with at_work(cluster.binder):
        for name in ("v", "w"):
            local_volume(cluster, name)
        for name in ("c", "d"):
            cluster.claim(name, "local")
        cluster.pod("c", "d")
        cluster.decide()
        await cluster.until(lambda: cluster.binder._preparing)
        await asyncio.sleep(0)  # the first is being written
        cluster.cache.apply("persistentvolumes", "DELETED", cluster.cache.persistentvolumes["w"])
        report = await cluster.report()
    assert (report.bound, report.retry, report.answer.reason) == (False, True, REASON)
    assert not cluster.cache.quarantine.get("pods", "ns/p")


async def test_a_time_out_lets_the_claim_go_and_leaves_the_node_out_for_a_while() -> None:
    cluster = Cluster(timeout_seconds=0.05)
    async with at_work(cluster.binder):
        cluster.claim("c", "made")
        cluster.pod("c")
        cluster.decide()
        report = await cluster.report()
        assert (report.bound, report.retry, report.answer.reason) == (False, True, REASON)
        assert cluster.selected("c") is None
        opened = cluster.reader.opened(cluster.cache.pods["ns/p"])
        assert opened is not None
        assert [one.choice.avoided for one in opened] == [("a",)]
        cluster.decide(node="b")
        await cluster.until(lambda: cluster.selected("c") == "b")
        # After five time-outs the node is like any other again.
        await cluster.until(lambda: not cluster.reader._avoided)
    assert cluster.bound == []


async def test_a_claim_that_loses_its_node_is_decided_anew() -> None:
    cluster = Cluster()
    async with at_work(cluster.binder):
        await cluster.select()
        await asyncio.sleep(0)
        cluster.claim("c", "made")  # the provisioner found no room there
        report = await cluster.report()
    assert (report.bound, report.retry) == (False, True)
    assert "no volume can be made for claim c on a" in report.answer.message


async def test_what_somebody_else_wrote_first_is_not_written_over() -> None:
    cluster = Cluster()
    async with at_work(cluster.binder):
        cluster.claim("c", "made")
        cluster.pod("c")
        cluster.refuse = 409
        cluster.decide()
        report = await cluster.report()
    assert (report.bound, report.retry, report.answer.code) == (False, True, 409)
    assert cluster.selected("c") is None


async def test_a_volume_that_the_node_can_t_use_is_no_reason_to_bind() -> None:
    cluster = Cluster()
    async with at_work(cluster.binder):
        await cluster.select()
        cluster.finish("c", "v", ["b"])
        report = await cluster.report()
    assert (report.bound, report.retry) == (False, True)
    assert cluster.bound == []


async def test_a_pod_that_goes_meanwhile_is_not_waited_for() -> None:
    cluster = Cluster()
    async with at_work(cluster.binder):
        await cluster.select()
        cluster.cache.apply("pods", "DELETED", cluster.cache.pods["ns/p"])
        report = await cluster.report()
    assert (report.bound, report.retry, report.answer.code) == (False, False, 404)


async def test_a_replica_that_stops_leaves_what_it_wrote_and_reports_once() -> None:
    cluster = Cluster()
    async with at_work(cluster.binder):
        await cluster.select()
        await cluster.binder.drain()
        report = await cluster.report()
        await asyncio.sleep(0)
    assert (report.bound, report.retry) == (False, False)
    assert cluster.reports == []
    assert cluster.selected("c") == "a"


async def test_pods_that_share_a_claim_are_all_bound_when_its_volume_is_there() -> None:
    cluster = Cluster(timeout_seconds=60.0)
    async with at_work(cluster.binder):
        await cluster.select()
        cluster.pod("c", name="q")
        cluster.decide("q")
        await cluster.until(lambda: len(cluster.binder._preparing) == 2)
        for _ in range(20):  # both wait
            await asyncio.sleep(0)
        cluster.finish("c", "v", ["a"])
        await cluster.until(lambda: len(cluster.bound) == 2)
    assert sorted(cluster.bound) == [("p", "a"), ("q", "a")]


async def test_a_pod_whose_claims_trip_the_binder_is_quarantined_and_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VolumeBinder, "prepare", None)
    cluster = Cluster()
    async with at_work(cluster.binder):
        cluster.claim("c", "made")
        cluster.pod("c")
        cluster.decide()
        report = await cluster.report()
    assert (report.bound, report.retry, report.answer.reason) == (False, True, "InternalError")
    assert cluster.cache.quarantine.get("pods", "ns/p") is not None

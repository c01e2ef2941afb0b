"""One object on which many pods depend changes: another namespace's pod waits for one round and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from cotide_core.classes import MAX_CLASS_LABEL
from cotide_core.events import BudgetUpserted, Event, PodUpserted, SelectorUpserted, WorkloadUpserted
from cotide_operator.cache.object_cache import TYPES, Kind, ObjectCache
from cotide_operator.clock import real_clock
from cotide_operator.translation import event_source
from cotide_operator.translation.event_source import EventSource
from cotide_operator.translation.pod_groups import POD_GROUP_LABEL
from cotide_operator.translation.volumes.reader import VolumeReader

CROWD = 20
WAITS = {"provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
JOB = [{"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "j", "uid": "o", "controller": True}]


class Cluster:
    """A cache and the event source that follows it; namespace ``crowd`` has many pods."""

    def __init__(self) -> None:
        self.cache = ObjectCache()
        self.source = EventSource(self.cache, real_clock(), ("cotide",))

    def put(self, kind: Kind, name: str, namespace: str = "", **body: Any) -> None:
        there = f"{namespace}/{name}" if namespace else name
        change = "MODIFIED" if there in self.cache.objects(kind) else "ADDED"
        metadata = {"name": name, "namespace": namespace, "uid": f"u-{name}", **body.pop("metadata", {})}
        self.cache.apply(kind, change, msgspec.convert({"metadata": metadata, **body}, TYPES[kind]))

    def pod(self, name: str, namespace: str, metadata: dict[str, Any] | None = None, **spec: Any) -> None:
        self.put("pods", name, namespace, metadata=metadata or {}, spec={"schedulerName": "cotide", **spec})

    def crowd(self, metadata: dict[str, Any] | None = None, **spec: Any) -> None:
        for number in range(CROWD):
            self.pod(f"p{number}", "crowd", metadata, **spec)

    def claim(self, size: str) -> None:
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        self.put("persistentvolumeclaims", "c", "crowd", spec={"storageClassName": "s", **asked})

    def claiming_crowd(self) -> None:
        self.put("storageclasses", "s", **WAITS)
        self.claim("1Gi")
        self.crowd(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}])


def claim(on: Cluster) -> Callable[[], None]:
    on.claiming_crowd()
    return lambda: on.claim("2Gi")


def volume(on: Cluster) -> Callable[[], None]:
    on.claiming_crowd()
    body = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "s"}
    return lambda: on.put("persistentvolumes", "v", spec=body, status={"phase": "Available"})


def storage_class(on: Cluster) -> Callable[[], None]:
    on.claiming_crowd()
    return lambda: on.put("storageclasses", "s", provisioner="another.example.com")


def csi_driver(on: Cluster) -> Callable[[], None]:
    on.claiming_crowd()
    return lambda: on.put("csidrivers", "disk.example.com", spec={"storageCapacity": True})


def storage_capacity(on: Cluster) -> Callable[[], None]:
    on.claiming_crowd()
    body = {"storageClassName": "s", "capacity": "1Gi", "nodeTopology": {}}
    return lambda: on.put("csistoragecapacities", "k", "crowd", **body)


def csi_node(on: Cluster) -> Callable[[], None]:
    on.claiming_crowd()
    driver = {"name": "disk.example.com", "nodeID": "n", "allocatable": {"count": 3}}
    return lambda: on.put("csinodes", "n", spec={"drivers": [driver]})


def avoided_node(on: Cluster) -> Callable[[], None]:
    on.claiming_crowd()
    return lambda: on.source.volumes.avoid("crowd/c", "n")


def pod_group(on: Cluster) -> Callable[[], None]:
    on.crowd({"labels": {POD_GROUP_LABEL: "g"}})
    return lambda: on.put("podgroups", "g", "crowd", spec={"minMember": 3})


def gang_workload(on: Cluster) -> Callable[[], None]:
    on.crowd(workloadRef={"name": "g", "podGroup": "w"})
    groups = [{"name": "w", "policy": {"gang": {"minCount": 3}}}]
    return lambda: on.put("gangworkloads", "g", "crowd", spec={"podGroups": groups})


def gang_pod_group(on: Cluster) -> Callable[[], None]:
    on.crowd(schedulingGroup={"podGroupName": "g"})
    policy = {"gang": {"minCount": 3}}
    return lambda: on.put("gangpodgroups", "g", "crowd", spec={"schedulingPolicy": policy})


def owning_job(on: Cluster) -> Callable[[], None]:
    on.crowd({"ownerReferences": JOB})
    return lambda: on.put("jobs", "j", "crowd", spec={"class": "batch", "priority": 7})


def priority_class(on: Cluster) -> Callable[[], None]:
    on.crowd(priorityClassName="high")
    return lambda: on.put("priorityclasses", "high", value=7)


def namespace(on: Cluster) -> Callable[[], None]:
    on.crowd({"annotations": {"cotide.dev/class": "online"}})
    return lambda: on.put("namespaces", "crowd", metadata={"labels": {MAX_CLASS_LABEL: "gratis"}})


def selecting_workload(on: Cluster) -> Callable[[], None]:
    on.crowd({"labels": {"app": "web"}})
    return lambda: on.put("workloads", "w", "crowd", spec={"selector": {"matchLabels": {"app": "web"}}})


def relabelled(on: Cluster) -> Callable[[], None]:
    on.crowd()

    def relabel() -> None:
        on.crowd({"labels": {"app": "web"}})
        while on.source.waiting:  # no pod selects by label: the engine need not know yet
            on.source.collect_part()
        on.put("services", "web", "crowd", spec={"selector": {"app": "web"}})
        on.source.collect_part()

    return relabel


def asked_sizes(on: Cluster) -> Callable[[], None]:
    on.crowd()

    def take_back() -> None:
        for number in range(CROWD):
            on.source.expect_size(f"crowd/p{number}", f"u-p{number}", (1, 1))
            on.source.expect_size(f"crowd/p{number}", f"u-p{number}", None)

    return take_back


FAN_OUTS = (
    claim, volume, storage_class, csi_driver, storage_capacity, csi_node, avoided_node, pod_group, gang_workload,
    gang_pod_group, owning_job, priority_class, namespace, selecting_workload, relabelled, asked_sizes,
)  # fmt: skip


def pods_of(events: list[Event]) -> list[str]:
    return [event.pod.key for event in events if isinstance(event, PodUpserted)]


@pytest.mark.parametrize("fan_out", FAN_OUTS)
def test_the_pods_that_one_change_puts_up_delay_another_namespace_by_one_round(
    fan_out: Callable[[Cluster], Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    change = fan_out(cluster)
    cluster.source.collect()
    monkeypatch.setattr(event_source, "CHANGES_AT_ONCE", 2)
    change()
    cluster.pod("one", "other")
    assert "other/one" in pods_of(cluster.source.collect_part())
    crowd = 1
    while cluster.source.waiting:
        cluster.source.collect_part()
        crowd += 2
    assert crowd > CROWD // 2, "the change put all of them up"


def test_the_pods_of_a_claim_are_gone_through_once_however_often_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.claiming_crowd()
    cluster.source.collect()
    asked: list[str] = []
    original = VolumeReader.concerned

    def concerned(self: VolumeReader, kind: Kind, key: str) -> Iterable[str]:
        asked.append(key)
        return original(self, kind, key)

    monkeypatch.setattr(VolumeReader, "concerned", concerned)
    for number in range(100):
        cluster.claim(f"{number + 2}Gi")
    assert cluster.source.waiting
    cluster.source.collect()
    assert not cluster.source.waiting
    assert asked == ["crowd/c"]


@pytest.mark.parametrize(
    ("kind", "event", "body"),
    [
        ("workloads", WorkloadUpserted, {}),
        ("poddisruptionbudgets", BudgetUpserted, {"spec": {"selector": {"matchLabels": {"a": "b"}}}}),
        ("services", SelectorUpserted, {"spec": {"selector": {"a": "b"}}}),
    ],
)
def test_many_objects_of_one_namespace_delay_another_namespace_s_by_one_round(
    kind: Kind, event: type[Event], body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    cluster.source.collect()
    monkeypatch.setattr(event_source, "CHANGES_AT_ONCE", 2)
    for number in range(CROWD):
        cluster.put(kind, f"w{number}", "crowd", **body)
    cluster.put(kind, "one", "other", **body)
    found = [one for one in cluster.source.collect_part() if isinstance(one, event)]
    assert len(found) == 2
    assert "other/one" in str(found)


def test_a_workload_that_selects_a_crowd_delays_another_namespace_s_workload_by_one_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cotide_operator.cache.object_cache.SETTLE_SECONDS", -1.0)  # one pod a call
    cluster = Cluster()
    labels = {"labels": {"app": "web"}}
    cluster.crowd(labels)
    cluster.pod("one", "other", labels)
    selector = {"selector": {"matchLabels": {"app": "web"}}}
    cluster.put("workloads", "w", "crowd", spec=selector)
    cluster.put("workloads", "w", "other", spec=selector)
    cluster.cache.settle()
    assert cluster.cache.workload_of("other/one") == "other/w"
    assert cluster.cache.pod_count("workloads", "crowd/w") == 2

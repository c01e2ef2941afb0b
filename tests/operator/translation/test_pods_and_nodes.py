# ruff: noqa: E501 - tables of cases read best with one case a line
"""Raw pods to core pods: a table of cases, each named for the rule it shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.events import HostPort, NodeTerm, Pod, PodPhase, Requirement, Taint, Toleration
from cotide_core.limits import IMAGE_CHARACTERS
from cotide_kube.objects import NamespaceObject, NodeObject, PodObject, PriorityClassObject
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.translation.constraints import DEFAULT_TOLERATIONS
from cotide_operator.translation.pod_times import PodTimes
from cotide_operator.translation.pods_and_nodes import ownership_of, translate_node, translate_pod, translate_workload

GI = 1024**3


def pod_object(spec: dict[str, Any] | None = None, **metadata: Any) -> PodObject:
    """A pod of ours, as the API would send it."""
    body = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", **metadata},
        "spec": {"schedulerName": "cotide", "containers": [{"name": "c"}], **(spec or {})},
    }
    return msgspec.convert(body, PodObject)


def translated(pod: PodObject, cache: ObjectCache | None = None) -> Pod:
    cache = cache or ObjectCache()
    cache.apply("pods", "ADDED", pod)
    return translate_pod(pod, ownership_of(pod, cache), PodTimes(pod.metadata.uid, 100.0))


def container(name: str = "c", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


REQUESTS = [
    (
        "containers add up",
        {"containers": [container(cpu="1"), container(cpu="500m", memory="1Gi")]},
        {"cpu": 1500, "memory": GI},
    ),
    (
        "an init container counts where it is larger: max(1000, 3000)",
        {"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]},
        {"cpu": 3000},
    ),
    (
        "a sidecar runs beside the containers: 1000 + 200",
        {
            "containers": [container(cpu="1")],
            "initContainers": [{**container(cpu="200m"), "restartPolicy": "Always"}],
        },
        {"cpu": 1200},
    ),
    (
        "an init container runs beside the sidecars before it: max(1000 + 200 + 100, 1500 + 200)",
        {
            "containers": [container(cpu="1")],
            "initContainers": [
                {**container(cpu="200m"), "restartPolicy": "Always"},
                container(cpu="1500m"),
                {**container(cpu="100m"), "restartPolicy": "Always"},
            ],
        },
        {"cpu": 1700},
    ),
    ("overhead is added", {"containers": [container(cpu="1")], "overhead": {"cpu": "50m"}}, {"cpu": 1050}),
    (
        "a limit stands in for a missing request",
        {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}}}]},
        {"cpu": 2000, "memory": GI},
    ),
    (
        "requests of the pod replace the sum, resource by resource",
        {"containers": [container(cpu="1", memory="1Gi")], "resources": {"requests": {"cpu": "4"}}},
        {"cpu": 4000, "memory": GI},
    ),
    (
        "reclaimed cpu is counted in millicores by its own definition",
        {"containers": [container(**{"cotide.dev/reclaimed-cpu": "1500"})]},
        {"cotide.dev/reclaimed-cpu": 1500},
    ),
    ("nothing asked for is nothing", {"containers": [container()]}, {}),
]


@pytest.mark.parametrize(("spec", "expected"), [case[1:] for case in REQUESTS], ids=[case[0] for case in REQUESTS])
def test_requests_are_what_the_kubelet_will_count(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert dict(translated(pod_object(spec)).requests) == expected


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
UNSUPPORTED = [
    (
        "spec.volumes[1].persistentVolumeClaim",
        {"volumes": [{"name": "a"}, {"name": "b", "persistentVolumeClaim": {"claimName": "x"}}]},
    ),
    ("spec.volumes[0].ephemeral", {"volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": {}}}]}),
    ("spec.resourceClaims", {"resourceClaims": [{"name": "gpu"}]}),
    (
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchFields[0]",
        {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.uid", "operator": "In"}]}]}
                }
            }
        },
    ),
]


@pytest.mark.parametrize(("path", "spec"), UNSUPPORTED, ids=[case[0] for case in UNSUPPORTED])
def test_a_required_constraint_that_is_not_supported_is_named(path: str, spec: dict[str, Any]) -> None:
    assert translated(pod_object(spec)).unsupported == (path,)


PREFERENCES = [
    {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]},
    {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
    {"volumes": [{"name": "a", "emptyDir": {}}]},
]


@pytest.mark.parametrize("spec", PREFERENCES)
def test_a_preference_binds_nobody(spec: dict[str, Any]) -> None:
    assert translated(pod_object(spec)).unsupported == ()


def test_a_request_that_cannot_be_read_is_misconfigured_and_never_nothing() -> None:
    pod = translated(pod_object({"containers": [container(cpu="much")]}))
    assert pod.requests == ()
    assert pod.unsupported[0].startswith("spec.containers[0].resources.requests[cpu] ('much' is not a quantity")


def test_required_node_affinity_becomes_alternatives() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    ]
    pod = translated(pod_object({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}))
    assert pod.node_terms[0] == NodeTerm(labels=(Requirement("zone", "In", ("a", "b")),))
    assert pod.node_terms[1] == NodeTerm(fields=(Requirement("metadata.name", "In", ("n1",)),))
    # An empty term matches no node, which `In` without values says.
    assert pod.node_terms[2].labels[0].values == ()


def test_default_tolerations_are_there_unless_the_pod_has_its_own() -> None:
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    assert translated(pod_object()).tolerations == DEFAULT_TOLERATIONS
    assert translated(pod_object({"tolerations": [own]})).tolerations == (
        Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"),
        DEFAULT_TOLERATIONS[1],
    )


def test_with_host_network_each_container_port_is_a_host_port() -> None:
    ports = [
        {"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "TCP"},
        {"containerPort": 53, "protocol": "UDP"},
    ]
    containers = [{"name": "c", "ports": ports}]
    assert translated(pod_object({"containers": containers})).host_ports == (HostPort("TCP", "10.0.0.1", 8080),)
    assert translated(pod_object({"containers": containers, "hostNetwork": True})).host_ports == (
        HostPort("TCP", "10.0.0.1", 8080),
        HostPort("UDP", "0.0.0.0", 53),  # noqa: S104 - what the pod takes, no socket of ours
    )


def test_a_pod_of_another_scheduler_counts_as_usage_only() -> None:
    spec = {
        "schedulerName": "default-scheduler",
        "nodeName": "n1",
        "resourceClaims": [{"name": "gpu"}],
        "containers": [container(cpu="1")],
    }
    pod = translated(pod_object(spec))
    assert (pod.ours, pod.node, dict(pod.requests)) == (False, "n1", {"cpu": 1000})
    assert (pod.unsupported, pod.tolerations, pod.gates) == ((), (), ())


def test_a_pod_tells_the_image_of_its_first_container_cut_to_what_is_read() -> None:
    containers = [{"name": "main", "image": "r.example/etl:v1"}, {"name": "side", "image": "proxy"}]
    assert translated(pod_object(spec={"containers": containers})).image == "r.example/etl:v1"
    containers[0]["image"] = "x" * 10_000
    assert len(translated(pod_object(spec={"containers": containers})).image) == IMAGE_CHARACTERS


def test_annotations_describe_the_job_and_nonsense_in_them_is_no_value() -> None:
    annotations = {
        "cotide.dev/type": "wordcount",
        "cotide.dev/input-size": "2Gi",
        "cotide.dev/requested-seconds": "90",
        "cotide.dev/job-priority": "700",
    }
    pod = translated(pod_object(annotations=annotations))
    assert (pod.type, pod.input_bytes, pod.requested_seconds, pod.job_priority) == ("wordcount", 2 * GI, 90.0, 700)
    nonsense = {
        "cotide.dev/input-size": "big",
        "cotide.dev/requested-seconds": "nan",
        "cotide.dev/job-priority": "high",
    }
    pod = translated(pod_object(annotations=nonsense))
    assert (pod.input_bytes, pod.requested_seconds, pod.job_priority) == (0, None, 100)


def test_gates_priority_and_deletion_are_seen() -> None:
    pod = translated(
        pod_object({"schedulingGates": [{"name": "g"}], "priority": 7}, deletionTimestamp="2026-11-20T13:00:00Z")
    )
    assert (pod.gates, pod.priority, pod.terminating, pod.phase) == (("g",), 7, True, PodPhase.PENDING)


def owner(kind: str, api_version: str, name: str = "j") -> list[dict[str, Any]]:
    return [{"apiVersion": api_version, "kind": kind, "name": name, "uid": "o", "controller": True}]


def mirror_with(**objects: Any) -> ObjectCache:
    cache = ObjectCache()
    if "job_class" in objects:
        job = {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"class": objects["job_class"], "priority": 250}}
        cache.apply("jobs", "ADDED", msgspec.convert(job, CustomObject))
    if "selects" in objects:
        workload = {
            "metadata": {"name": "w", "namespace": "ns"},
            "spec": {"selector": {"matchLabels": objects["selects"]}},
        }
        cache.apply("workloads", "ADDED", msgspec.convert(workload, CustomObject))
    if "priority_class" in objects:
        name, value = objects["priority_class"]
        cache.apply(
            "priorityclasses",
            "ADDED",
            msgspec.convert({"metadata": {"name": name}, "value": value}, PriorityClassObject),
        )
    if "max_class" in objects:
        body = {"metadata": {"name": "ns", "labels": {"cotide.dev/max-class": objects["max_class"]}}}
        cache.apply("namespaces", "ADDED", msgspec.convert(body, NamespaceObject))
    return cache


CLASSES: list[tuple[str, PodObject, dict[str, Any], WorkloadClass]] = [
    ("an ordinary pod of priority 0 is online", pod_object({"priority": 0}), {}, WorkloadClass.ONLINE),
    ("the label decides before the owner", pod_object(labels={"cotide.dev/class": "gratis"}, ownerReferences=owner("Job", "batch/v1")), {}, WorkloadClass.GRATIS),
    ("a label that names no class is passed over", pod_object(labels={"cotide.dev/class": "vip"}), {}, WorkloadClass.ONLINE),
    ("our Job says its class", pod_object(ownerReferences=owner("Job", "cotide.dev/v1alpha1")), {"job_class": "gratis"}, WorkloadClass.GRATIS),
    ("our Job that is not known yet is batch", pod_object(ownerReferences=owner("Job", "cotide.dev/v1alpha1")), {}, WorkloadClass.BATCH),
    ("a Workload that selects it makes it online before its priority class", pod_object({"priorityClassName": "cotide-batch"}, labels={"app": "web"}), {"selects": {"app": "web"}}, WorkloadClass.ONLINE),
    ("a shipped priority class decides by its name", pod_object({"priorityClassName": "cotide-batch"}), {}, WorkloadClass.BATCH),
    ("a batch/v1 Job owns batch pods", pod_object(ownerReferences=owner("Job", "batch/v1")), {}, WorkloadClass.BATCH),
    ("a Job of another group is just an owner", pod_object(ownerReferences=owner("Job", "other.io/v1")), {}, WorkloadClass.ONLINE),
    ("the namespace caps even the label", pod_object(labels={"cotide.dev/class": "online"}), {"max_class": "batch"}, WorkloadClass.BATCH),
    ("a static pod is online, for nobody can evict it", pod_object({"nodeName": "n"}, labels={"cotide.dev/class": "gratis"}, annotations={"kubernetes.io/config.mirror": "1f2e"}), {"max_class": "batch"}, WorkloadClass.ONLINE),
    ("a pod without a node is no static one, whatever it writes", pod_object(annotations={"kubernetes.io/config.mirror": "1f2e"}), {"max_class": "batch"}, WorkloadClass.BATCH),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pod", "objects", "expected"), [case[1:] for case in CLASSES], ids=[case[0] for case in CLASSES]
)
def test_class_is_decided_in_the_promised_order(
    pod: PodObject, objects: dict[str, Any], expected: WorkloadClass
) -> None:
    assert translated(pod, mirror_with(**objects)).workload_class is expected


def test_a_job_gives_its_pods_key_and_priority() -> None:
    pod = translated(pod_object(ownerReferences=owner("Job", "cotide.dev/v1alpha1")), mirror_with(job_class="batch"))
    assert (pod.job, pod.job_priority) == ("ns/j", 250)


def test_a_job_that_changed_its_priority_outweighs_what_its_pods_were_made_with() -> None:
    pod = pod_object(ownerReferences=owner("Job", "cotide.dev/v1alpha1"), annotations={"cotide.dev/job-priority": "50"})
    assert translated(pod, mirror_with(job_class="batch")).job_priority == 250
    assert translated(pod).job_priority == 50  # the Job is not known yet, or no more


def test_a_named_priority_class_stands_in_where_the_server_resolved_no_priority() -> None:
    assert (
        translated(pod_object({"priorityClassName": "mid"}), mirror_with(priority_class=("mid", 2000))).priority == 2000
    )


def node_object(**parts: Any) -> NodeObject:
    return msgspec.convert({"metadata": {"name": "n"}, **parts}, NodeObject)


def test_a_node_offers_its_allocatable_amounts_with_labels_and_taints() -> None:
    node = translate_node(
        node_object(
            metadata={"name": "n", "labels": {"zone": "a"}},
            spec={"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            status={"allocatable": {"memory": "1Gi", "cpu": "3900m", "pods": "110"}, "capacity": {"cpu": "4"}},
        )
    )
    assert node.allocatable == (("cpu", 3900), ("memory", GI), ("pods", 110))
    assert (node.labels, node.taints) == ((("zone", "a"),), (Taint("k", "v", "NoSchedule"),))


NODES = [
    ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, (True, False)),
    ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, (False, False)),
    ({}, (True, False)),
    ({"spec": {"unschedulable": True}}, (True, True)),
    ({"metadata": {"name": "n", "deletionTimestamp": "2026-11-20T13:00:00Z"}}, (True, True)),
]


@pytest.mark.parametrize(("parts", "expected"), NODES)
def test_a_node_that_may_not_take_pods_is_seen(parts: dict[str, Any], expected: tuple[bool, bool]) -> None:
    node = translate_node(node_object(**parts))
    assert (node.ready, node.unschedulable) == expected


def test_a_workload_without_a_usable_limit_promises_ten_milliseconds() -> None:
    for qos in (
        {},
        {"latencyP95Milliseconds": "fast"},
        {"latencyP95Milliseconds": -1},
        {"latencyP95Milliseconds": True},
    ):
        body = {"metadata": {"name": "w", "namespace": "ns"}, "spec": {"qos": qos}}
        assert translate_workload(msgspec.convert(body, CustomObject)).latency_p95_milliseconds == 10.0
    body = {
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"qos": {"latencyP95Milliseconds": 2.5}, "exclusive": True},
    }
    promise = translate_workload(msgspec.convert(body, CustomObject))
    assert (promise.key, promise.latency_p95_milliseconds, promise.exclusive) == ("ns/w", 2.5, True)


def test_a_nomination_is_read_while_the_pod_waits() -> None:
    body = {"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}, "status": {"nominatedNodeName": "n1"}}
    waiting = msgspec.convert({**body, "spec": {"schedulerName": "cotide"}}, PodObject)
    assert translated(waiting).nominated_node == "n1"
    bound = msgspec.convert({**body, "spec": {"schedulerName": "cotide", "nodeName": "n2"}}, PodObject)
    assert translated(bound).nominated_node is None
    another = msgspec.convert({**body, "spec": {"schedulerName": "default-scheduler"}}, PodObject)
    assert translated(another).nominated_node is None, "that is for its own scheduler"


@pytest.mark.parametrize(("text", "expected"), [("1970-01-01T00:01:40Z", 200.0), ("tomorrow", None), ("", None)])
def test_a_noted_cordon_is_read_on_the_operators_clock(text: str, expected: float | None) -> None:
    body = {"metadata": {"name": "n", "annotations": {"cotide.dev/cordoned-until": text}}}
    node = translate_node(msgspec.convert(body, NodeObject), lambda wall: 2 * wall)
    assert node.cordoned_until_seconds == expected

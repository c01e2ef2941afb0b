"""What claims, volumes and storage classes make of a pod's constraints, and which pods a change concerns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from manifests import pod_object

from cotide_core.events import NodeTerm, OpenClaim, Requirement, VolumeChoice
from cotide_core.limits import MAX_CLAIMS, MAX_REQUIREMENTS
from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import TYPES, Kind, ObjectCache, key_of
from cotide_operator.clock import real_clock
from cotide_operator.translation.event_source import EventSource
from cotide_operator.translation.node_terms import MATCHES_NOTHING
from cotide_operator.translation.volumes.claims import DEMANDS_KEPT, SELECTED_NODE, VolumeFacts
from cotide_operator.translation.volumes.reader import VolumeReader

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
WAITS = {"provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
LOCAL = {**WAITS, "provisioner": "kubernetes.io/no-provisioner"}
ZONE = "topology.kubernetes.io/zone"


class Objects:
    """A cache with a reader that follows it."""

    def __init__(self) -> None:
        self.cache = ObjectCache()
        self.reader = VolumeReader(self.cache)
        self.concerned: list[str] = []
        self.nodes: list[str] = []
        self.cache.subscribe(self._follow)

    def put(self, kind: Kind, name: str, change: str = "ADDED", **body: Any) -> None:
        metadata = {"name": name, "uid": f"u-{name}", **body.pop("metadata", {})}
        if kind in ("persistentvolumeclaims", "csistoragecapacities"):
            metadata["namespace"] = "ns"
        self.cache.apply(kind, change, msgspec.convert({"metadata": metadata, **body}, TYPES[kind]))

    def claim(self, name: str = "c", *, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
        self.put("persistentvolumeclaims", name, metadata={"annotations": annotations or {}}, spec=asked)

    def bound(self, name: str = "c", volume: str = "v", **spec: Any) -> None:
        self.claim(name, annotations=BOUND, volumeName=volume, **spec)

    def volume(self, name: str = "v", size: str = "1Gi", *, labels: dict[str, str] | None = None, **spec: Any) -> None:
        body = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], **spec}
        status = {"phase": "Bound" if "claimRef" in spec else "Available"}
        self.put("persistentvolumes", name, metadata={"labels": labels or {}}, spec=body, status=status)

    def storage_class(self, name: str, **body: Any) -> None:
        self.put("storageclasses", name, **body)

    def facts(self, pod: PodObject | None = None) -> VolumeFacts:
        found = self.reader.facts(pod or claiming())
        assert found is not None
        return found

    def _follow(self, kind: Kind, key: str) -> None:
        self.concerned = list(self.reader.concerned(kind, key))
        self.nodes = sorted(self.reader.nodes_concerned(kind, key))


def claiming(*names: str, name: str = "p", node: str = "") -> PodObject:
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in names or ("c",)]
    return pod_object(name, spec={"volumes": volumes, **({"nodeName": node} if node else {})})


def reach(*names: str) -> dict[str, Any]:
    """The node affinity of a volume that hosts of these names reach."""
    expression = {"key": "host", "operator": "In", "values": list(names)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def hosts(*names: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Requirement("host", "In", names),)),)


def test_a_bound_claim_ties_to_where_its_volume_can_be_used() -> None:
    objects = Objects()
    objects.bound()
    objects.volume(nodeAffinity=reach("a", "b"), claimRef={"namespace": "ns", "name": "c", "uid": "u-c"})
    assert objects.facts() == VolumeFacts((hosts("a", "b"),))


def test_a_volume_s_zone_counts_where_nodes_have_any() -> None:
    objects = Objects()
    objects.bound()
    objects.volume(labels={ZONE: "a__b"})
    ((none, zone),) = objects.facts().volume_terms
    assert {label.operator for label in none.labels} == {"DoesNotExist"}
    assert len(none.labels) == 4
    assert zone == NodeTerm((Requirement(ZONE, "In", ("a", "b")),))


def test_an_old_zone_label_is_looked_for_under_its_new_name_on_nodes_without_it() -> None:
    objects = Objects()
    objects.bound()
    old = "failure-domain.beta.kubernetes.io/zone"
    objects.volume(labels={old: "a"})
    ((_, plain, general),) = objects.facts().volume_terms
    assert plain == NodeTerm((Requirement(old, "In", ("a",)),))
    assert general == NodeTerm((Requirement(old, "DoesNotExist"), Requirement(ZONE, "In", ("a",))))


BLOCKED = [
    ("no claim", lambda _: None, 'persistentvolumeclaim "c" not found'),
    ("no class", lambda on: on.claim(), "pod has unbound immediate PersistentVolumeClaims"),
    (
        "a class that binds at once",
        lambda on: (on.claim(storageClassName="s"), on.storage_class("s", volumeBindingMode="Immediate")),
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    (
        "a volume is named, and not bound yet",
        lambda on: (on.claim(storageClassName="s", volumeName="v"), on.storage_class("s", **WAITS)),
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    ("no volume", lambda on: on.bound(), 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'),
    (
        "it goes",
        lambda on: on.put("persistentvolumeclaims", "c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        'persistentvolumeclaim "c" is being deleted',
    ),
    (
        "lost",
        lambda on: on.put("persistentvolumeclaims", "c", spec={"volumeName": "v"}, status={"phase": "Lost"}),
        'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
    ),
    (
        "an amount that nobody can read",
        lambda on: (
            on.claim(storageClassName="s", resources={"requests": {"storage": "much"}}),
            on.storage_class("s", **WAITS),
        ),
        "persistentvolumeclaim \"c\" asks for an amount that can't be read: 'much' is not a quantity "
        "(write for example 250m, 2, 512Mi or 1.5G)",
    ),
    (
        "an affinity that nobody can look at",
        lambda on: (on.bound(), on.volume(nodeAffinity=reach(*map(str, range(MAX_REQUIREMENTS))))),
        f'persistentvolume "v" has a node affinity of more than {MAX_REQUIREMENTS} entries',
    ),
]


@pytest.mark.parametrize(("make", "why"), [case[1:] for case in BLOCKED], ids=[case[0] for case in BLOCKED])
def test_a_claim_that_can_t_be_judged_says_why(make: Any, why: str) -> None:
    objects = Objects()
    make(objects)
    assert objects.facts().blocked == why
    assert objects.facts().open_claims == ()


def test_a_claim_that_waits_takes_the_smallest_volume_that_suffices_or_has_one_made() -> None:
    objects = Objects()
    objects.storage_class("s", **WAITS, allowedTopologies=[{"matchLabelExpressions": [{"key": "z", "values": ["a"]}]}])
    objects.claim(storageClassName="s")
    objects.volume("large", "3Gi", storageClassName="s", nodeAffinity=reach("a"))
    objects.volume("small", "2Gi", storageClassName="s")
    objects.volume("tiny", "1Mi", storageClassName="s")
    objects.volume("other", storageClassName="t")
    objects.volume("block", storageClassName="s", volumeMode="Block")
    objects.volume("shared", storageClassName="s", accessModes=["ReadOnlyMany"])
    objects.volume("taken", storageClassName="s", claimRef={"namespace": "ns", "name": "d", "uid": "u-d"})
    choices = (VolumeChoice("small"), VolumeChoice("large", hosts("a")))
    where = (NodeTerm((Requirement("z", "In", ("a",)),)),)
    assert objects.facts().open_claims == (OpenClaim(choices, provisions=True, topologies=where),)
    objects.storage_class("s", **LOCAL)
    assert objects.facts().open_claims == (OpenClaim(choices),)


def test_a_volume_that_is_meant_for_a_claim_is_the_only_one() -> None:
    objects = Objects()
    objects.storage_class("s", **LOCAL)
    objects.claim(storageClassName="s")
    objects.volume("free", storageClassName="s")
    objects.volume("meant", storageClassName="s", claimRef={"namespace": "ns", "name": "c"})
    assert objects.facts().open_claims == (OpenClaim((VolumeChoice("meant"),)),)
    objects.volume("meant", storageClassName="s", claimRef={"namespace": "ns", "name": "c", "uid": "of one before"})
    assert objects.facts().open_claims == (OpenClaim((VolumeChoice("free"),)),)


def test_a_volume_with_other_attributes_is_nobody_s_even_if_it_is_meant_for_the_claim() -> None:
    """As in FindMatchingVolume of k8s.io/component-helpers, which compares them before it looks at the claim."""
    objects = Objects()
    objects.storage_class("s", **LOCAL)
    objects.claim(storageClassName="s", volumeAttributesClassName="fast")
    objects.volume("slow", storageClassName="s")
    objects.volume("meant", storageClassName="s", claimRef={"namespace": "ns", "name": "c"})
    objects.volume("fast", storageClassName="s", volumeAttributesClassName="fast")
    assert objects.facts().open_claims == (OpenClaim((VolumeChoice("fast"),)),)


def test_a_changed_volume_is_judged_anew_and_claims_that_come_and_go_cost_no_memory() -> None:
    objects = Objects()
    objects.storage_class("s", **LOCAL)
    objects.volume("v", "1Ti", storageClassName="s", nodeAffinity=reach("a"))
    for number in range(3 * DEMANDS_KEPT):  # each asks for another amount
        objects.claim(storageClassName="s", resources={"requests": {"storage": str(number + 1)}})
        (opened,) = objects.facts().open_claims
        assert opened.volumes == (VolumeChoice("v", hosts("a")),)
    assert len(objects.reader._free._found_for) <= 2 * DEMANDS_KEPT
    objects.volume("v", "1Ti", storageClassName="s", nodeAffinity=reach("b"))
    assert objects.facts().open_claims == (OpenClaim((VolumeChoice("v", hosts("b")),)),)
    objects.put("persistentvolumes", "v", "DELETED")
    assert (objects.facts().open_claims, objects.reader._free._choice_of) == ((OpenClaim(),), {})


def test_a_claim_that_was_told_a_node_keeps_it_and_one_that_was_let_go_avoids_it() -> None:
    objects = Objects()
    objects.storage_class("s", **WAITS)
    objects.claim(storageClassName="s", annotations={SELECTED_NODE: "a"})
    objects.volume(storageClassName="s")
    assert objects.facts().open_claims == (OpenClaim(provisions=True, node="a"),)
    objects.claim(storageClassName="s")
    objects.reader.avoid("ns/c", "a")
    assert objects.concerned == ["ns/p"]
    assert objects.facts().open_claims == (OpenClaim((VolumeChoice("v"),), provisions=True, avoided=("a",)),)
    objects.reader.pardon("ns/c", "a")
    assert objects.facts().open_claims == (OpenClaim((VolumeChoice("v"),), provisions=True),)


def test_an_ephemeral_volume_s_claim_must_be_the_pod_s_own() -> None:
    objects = Objects()
    pod = pod_object(spec={"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]})
    waits = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
    assert objects.facts(pod).blocked == waits
    objects.bound("p-scratch")
    objects.volume()
    assert "was not created for this pod" in objects.facts(pod).blocked
    owner = {"kind": "Pod", "name": "p", "uid": "u-p", "controller": True}
    body = {"annotations": BOUND, "ownerReferences": [owner]}
    objects.put("persistentvolumeclaims", "p-scratch", metadata=body, spec={"volumeName": "v"})
    assert objects.facts(pod) == VolumeFacts()


def test_volumes_of_drivers_that_a_node_limits_are_counted_also_of_pods_that_run() -> None:
    objects = Objects()
    objects.bound(accessModes=["ReadWriteOncePod"])
    objects.volume(csi={"driver": "disk.example.com", "volumeHandle": "h"})
    running = claiming(node="a")
    assert objects.facts(running) == VolumeFacts(sole_claims=("ns/c",))
    driver = {"name": "disk.example.com", "nodeID": "a", "allocatable": {"count": 3}}
    objects.put("csinodes", "a", spec={"drivers": [driver, {"name": "free", "nodeID": "a"}]})
    assert objects.concerned == ["ns/p"]
    assert objects.reader.limits_of("a") == (("disk.example.com", 3),)
    assert objects.facts(running) == VolumeFacts(attachments=(("disk.example.com", "h"),), sole_claims=("ns/c",))
    objects.storage_class("s", **WAITS)
    objects.claim("d", storageClassName="s")
    assert objects.facts(claiming("d")).attachments == (("disk.example.com", "ns/d"),)
    objects.put("csinodes", "a", "DELETED")
    assert objects.facts(running).attachments == ()


def zones(*names: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Requirement(ZONE, "In", names),)),)


def test_a_driver_that_tells_of_its_room_makes_volumes_where_it_has_enough() -> None:
    objects = Objects()
    objects.storage_class("s", **WAITS)
    objects.claim(storageClassName="s", resources={"requests": {"storage": "2Gi"}})

    def rooms() -> tuple[NodeTerm, ...]:
        return objects.facts().open_claims[0].rooms

    def emit(name: str, topology: dict[str, Any] | None, **room: str) -> None:
        more = {} if topology is None else {"nodeTopology": topology}
        objects.put("csistoragecapacities", name, storageClassName="s", **more, **room)

    emit("a", {"matchLabels": {ZONE: "a"}}, capacity="3Gi")
    assert rooms() == ()  # nobody said that it tells of its room
    objects.put("csidrivers", "disk.example.com", spec={"storageCapacity": True})
    assert objects.concerned == ["ns/p"]
    assert rooms() == zones("a")
    emit("b", {"matchLabels": {ZONE: "b"}}, capacity="1Gi")
    emit("c", {"matchLabels": {ZONE: "c"}}, capacity="9Gi", maximumVolumeSize="1Gi")
    emit("d", None, capacity="9Gi")
    emit("e", {"matchLabels": {ZONE: "e"}})
    assert rooms() == zones("a")
    emit("b", {"matchLabels": {ZONE: "b"}}, capacity="2Gi")
    assert objects.concerned == ["ns/p"]
    assert rooms() == zones("a", "b")  # one term for all that name one label
    emit("f", {"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}, capacity="2Gi")
    assert rooms() == (*zones("a", "b"), NodeTerm((Requirement("rack", "DoesNotExist"),)))
    emit("g", {}, capacity="2Gi")
    assert rooms() == ()  # it is everywhere
    for name in "abfg":
        objects.put("csistoragecapacities", name, "DELETED", storageClassName="s")
    assert rooms() == (MATCHES_NOTHING,)


def test_what_hangs_on_a_node_is_told_of_drivers_that_it_limits() -> None:
    objects = Objects()
    driver = {"name": "disk.example.com", "nodeID": "a", "allocatable": {"count": 3}}
    objects.put("csinodes", "a", spec={"drivers": [driver, {"name": "free.example.com", "nodeID": "a"}]})
    assert objects.nodes == ["a"]
    for number, attacher in enumerate(("disk.example.com", "free.example.com")):
        spec = {"attacher": attacher, "nodeName": "a", "source": {"persistentVolumeName": "v"}}
        objects.put("volumeattachments", f"at-{number}", spec=spec)
        assert objects.nodes == ["a"]
    assert objects.reader.attached_to("a") == ()  # the volume is not known yet
    objects.volume(csi={"driver": "disk.example.com", "volumeHandle": "h"})
    assert objects.nodes == ["a"]
    assert objects.reader.attached_to("a") == (("disk.example.com", "h"),)
    assert objects.reader.attached_to("b") == ()
    moved = {"attacher": "disk.example.com", "nodeName": "b", "source": {"persistentVolumeName": "v"}}
    objects.put("volumeattachments", "at-0", spec=moved)
    assert objects.nodes == ["a", "b"]
    objects.put("volumeattachments", "at-0", "DELETED", spec=moved)
    assert objects.nodes == ["b"]
    assert objects.reader.attached_to("a") == ()


def test_a_change_concerns_the_pods_that_it_may_help_and_no_others() -> None:
    objects = Objects()
    objects.storage_class("s", **LOCAL)
    objects.claim("open", storageClassName="s")
    objects.bound("ready", "r")
    objects.volume("r")
    for name in ("open", "ready"):
        objects.reader.facts(claiming(name, name=name))
    objects.volume("v", storageClassName="s")
    assert objects.concerned == ["ns/open"]
    objects.volume("v", storageClassName="s")
    assert objects.concerned == []
    objects.volume("elsewhere", storageClassName="t")
    assert objects.concerned == []
    objects.bound("ready", "r")
    assert objects.concerned == ["ns/ready"]
    objects.storage_class("s", **WAITS)
    assert objects.concerned == ["ns/open"]
    objects.put("persistentvolumes", "v", "DELETED")
    assert objects.concerned == ["ns/open"]
    objects.reader.forget("ns/open")
    objects.volume("v", storageClassName="s")
    assert objects.concerned == []


def test_a_pod_with_more_claims_than_are_looked_at_is_misconfigured() -> None:
    cache = ObjectCache()
    source = EventSource(cache, real_clock(), ("cotide",))
    pod = claiming(*(f"c{number}" for number in range(MAX_CLAIMS + 1)))
    cache.apply("pods", "ADDED", pod)
    source.collect()
    (fault,) = source.pods[key_of(pod.metadata)].unsupported
    assert fault == f"claims in spec.volumes (more than {MAX_CLAIMS} entries)"


def test_a_pod_is_told_anew_when_its_claim_comes_and_when_it_is_bound() -> None:
    objects = Objects()
    source = EventSource(objects.cache, real_clock(), ("cotide",))
    pod = claiming()
    objects.cache.apply("pods", "ADDED", pod)
    source.collect()
    assert source.pods["ns/p"].blocked == 'persistentvolumeclaim "c" not found'
    objects.storage_class("s", **LOCAL)
    objects.volume(storageClassName="s", nodeAffinity=reach("a"))
    objects.claim(storageClassName="s")
    source.collect()
    assert source.pods["ns/p"].open_claims == (OpenClaim((VolumeChoice("v", hosts("a")),)),)
    assert not source.pods["ns/p"].unsupported
    objects.bound()
    source.collect()
    assert source.pods["ns/p"].volume_terms == (hosts("a"),)
    assert source.pods["ns/p"].open_claims == ()

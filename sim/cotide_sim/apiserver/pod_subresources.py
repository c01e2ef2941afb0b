"""Binding a pod to a node, and asking for its eviction.

Called by `dispatch`. Invariants: a pod is bound once (the second gets 409); an eviction that a disruption budget does
not allow changes nothing (429).
"""

from __future__ import annotations

from cotide_sim.apiserver.cluster import Cluster, WriteOptions
from cotide_sim.apiserver.deleting import DeleteOptions, delete
from cotide_sim.apiserver.disruption import allow_eviction
from cotide_sim.apiserver.refusals import bad_request, conflict
from cotide_sim.apiserver.resources import Json, Resource
from cotide_sim.apiserver.shapes import BINDING, EVICTION, check_body_shape


def bind(cluster: Cluster, resource: Resource, namespace: str, name: str, binding: Json, options: WriteOptions) -> None:
    """Give a pod its node, with the binding's annotations and labels.

    Raises
    ------
    Refusal
        404; 409 when the pod is bound, going, gated or another one; 400 when no node is named.
    """
    check_body_shape(binding, BINDING, "binding")
    given = binding.get("metadata") or {}
    target = binding.get("target") or {}
    node = target.get("name")
    if not node or not isinstance(node, str):
        raise bad_request("target.name: Required value: a binding names a node")
    if target.get("kind") not in (None, "", "Node"):
        raise bad_request(f'target.kind: Unsupported value: "{target.get("kind")}": supported values: "Node"')
    if given.get("name") and given["name"] != name:
        raise bad_request(f"the name of the binding ({given['name']}) does not match the name on the URL ({name})")
    entry = cluster.find(resource, namespace, name)
    uid = given.get("uid")
    if uid and uid != entry.uid:
        raise conflict(
            resource, name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}"
        )
    wanted = given.get("resourceVersion")
    if wanted and str(wanted) != str(entry.version):
        raise conflict(resource, name, f"Precondition failed: ResourceVersion in precondition: {wanted}, "
                       f"ResourceVersion in object meta: {entry.version}")  # fmt: skip
    obj = entry.decode()
    metadata, spec = obj["metadata"], obj["spec"]
    if "deletionTimestamp" in metadata:
        raise conflict(resource, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict(resource, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict(resource, name, f"pod {name} has non-empty .spec.schedulingGates")
    for field in ("annotations", "labels"):
        if given.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **given[field]}
    spec["nodeName"] = node
    status = obj.setdefault("status", {})
    others = [one for one in status.get("conditions") or () if one.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None,
                 "lastTransitionTime": cluster.timestamp()}  # fmt: skip
    status["conditions"] = [*others, scheduled]
    if not options.dry_run:
        cluster.write(resource, obj, entry)


def evict(cluster: Cluster, resource: Resource, namespace: str, name: str, eviction: Json) -> None:
    """Delete a pod if every disruption budget that selects it allows that.

    Raises
    ------
    Refusal
        404; 429 with the budget's name; 500 when two budgets select the pod.
    """
    check_body_shape(eviction, EVICTION, "eviction")
    entry = cluster.find(resource, namespace, name)
    options = DeleteOptions.read(eviction.get("deleteOptions") or {}, {})
    allow_eviction(cluster, entry, dry_run=options.dry_run)
    delete(cluster, resource, entry, options)

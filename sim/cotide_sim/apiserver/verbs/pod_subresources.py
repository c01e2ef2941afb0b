"""Binding a pod to a node, and requesting its eviction.

Called by `dispatch`. Invariants: a pod is bound once (the second gets 409); an eviction that a disruption budget does
not allow changes nothing (429).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cotide_sim.apiserver.cluster import Cluster, WriteOptions
from cotide_sim.apiserver.controllers.disruption import allow_eviction
from cotide_sim.apiserver.refusals import bad_request, conflict
from cotide_sim.apiserver.registry.resources import Json, Resource
from cotide_sim.apiserver.registry.shapes import BINDING, EVICTION, check_body_shape
from cotide_sim.apiserver.verbs.deleting import DeleteOptions, delete

BY_EVICTION: Final = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
"""Of the condition DisruptionTarget, as Kubernetes words it
(https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions)."""


def bind(cluster: Cluster, resource: Resource, namespace: str, name: str, binding: Json, options: WriteOptions) -> None:
    """Give a pod its node, with the binding's annotations and labels.

    Raises
    ------
    Refusal
        404; 409 when the pod is bound, terminating, gated or another one; 400 without the name of a node.
    """
    check_body_shape(binding, BINDING, "binding")
    given = binding.get("metadata") or {}
    target = binding.get("target") or {}
    node = target.get("name")
    if not node or not isinstance(node, str):
        raise bad_request("target.name: Required value")
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
    set_condition(obj.setdefault("status", {}), "PodScheduled", cluster.timestamp())
    if not options.dry_run:
        cluster.write(resource, obj, entry)


def evict(
    cluster: Cluster, resource: Resource, namespace: str, name: str, eviction: Json, *, dry_run: bool = False
) -> None:
    """Delete a pod if every disruption budget that selects it allows that; a condition states the reason.

    Parameters
    ----------
    dry_run : whether the request is a dry run; the eviction's own options may set this, too.

    Raises
    ------
    Refusal
        404; 409 when a precondition does not hold; 429 with the budget's name; 500 when two budgets select the pod.
    """
    check_body_shape(eviction, EVICTION, "eviction")
    entry = cluster.find(resource, namespace, name)
    options = DeleteOptions.read(eviction.get("deleteOptions") or {}, {})
    options = replace(options, dry_run=options.dry_run or dry_run)
    allow_eviction(cluster, entry, dry_run=options.dry_run)
    holds = options.uid in ("", entry.uid) and options.version in ("", str(entry.version))
    if holds and not options.dry_run:
        obj = entry.decode()
        set_condition(obj.setdefault("status", {}), "DisruptionTarget", cluster.timestamp(), **BY_EVICTION)
        if obj != entry.decode():
            entry = cluster.write(resource, obj, entry)
        options = replace(options, version="")
    delete(cluster, resource, entry, options)


def set_condition(status: Json, kind: str, at: str, **words: str) -> None:
    """Set a condition of a pod to true, with a reason and a message if there are any: since ``at`` if it was not
    true.
    """
    conditions = status.get("conditions") or []
    others = [condition for condition in conditions if condition.get("type") != kind]
    holds = [
        condition for condition in conditions if condition.get("type") == kind and condition.get("status") == "True"
    ]
    if any(words.items() <= hold.items() for hold in holds):
        return
    if holds:
        at = holds[0].get("lastTransitionTime", at)
    condition = {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": at, **words}
    status["conditions"] = [*others, condition]

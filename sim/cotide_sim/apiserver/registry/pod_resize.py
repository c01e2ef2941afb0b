"""The allowed changes and the checks of a write to ``pods/resize``: cpu and memory of containers.

Called by `writing` for the subresource. Pure. All other fields are restored silently, as on a real server. Pod-level
resources cannot be resized (their feature gate is off as shipped in 1.35).

Source: k8s.io/kubernetes v1.35.4, pkg/apis/core/validation (ValidatePodResize) and pkg/registry/core/pod
(podResizeStrategy).
"""

from __future__ import annotations

from typing import Any, Final

from cotide_core.errors import InputError
from cotide_core.units import parse_quantity
from cotide_sim.apiserver.refusals import Cause
from cotide_sim.apiserver.registry.plain_kinds import write_quantities
from cotide_sim.apiserver.registry.pod_rules import qos_class
from cotide_sim.apiserver.registry.pod_validation import pod_causes
from cotide_sim.apiserver.registry.resources import Json

_MUTABLE: Final = frozenset({"cpu", "memory"})
_LISTS: Final = ("containers", "initContainers")


def resized_form(new: Json, old: Json) -> Json:
    """Return the old pod with the new one's resources and resize policies; the new one where containers differ."""
    after, before = new.get("spec") or {}, old["spec"]
    spec = dict(before)
    for field in _LISTS:
        theirs, ours = after.get(field) or [], before.get(field) or []
        if not isinstance(theirs, list) or [_name(their) for their in theirs] != [_name(our) for our in ours]:
            return {**old, "spec": {**before, field: theirs}}
        if ours:
            spec[field] = [_with_resources(our, given) for our, given in zip(ours, theirs, strict=True)]
    return {**old, "spec": spec}


def _name(container: Any) -> Any:
    return container.get("name") if isinstance(container, dict) else None


def _with_resources(container: Json, given: Json) -> Json:
    changed = {key: value for key, value in container.items() if key not in ("resources", "resizePolicy")}
    resources = given.get("resources", {})
    if isinstance(resources, dict):
        for field in ("requests", "limits"):
            write_quantities(resources.get(field))
    return (
        changed
        | {"resources": resources}
        | ({"resizePolicy": given["resizePolicy"]} if "resizePolicy" in given else {})
    )


def resize_causes(new: Json, old: Json) -> list[Cause]:
    """Return the faults of a resize."""
    causes = pod_causes(new)
    after, before = new["spec"], old["spec"]
    if causes:
        return causes
    if qos_class(after) != qos_class(before):
        kind = (old.get("status") or {}).get("qosClass", "")
        text = f'Invalid value: "{kind}": Pod QOS Class may not change as a result of resizing'
        causes.append(Cause("spec", text))
    if not _supported(old):
        causes.append(_forbidden("spec", "Pod running on node without support for resize"))
    if before.get("resources"):
        text = (
            "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled"
            " feature gate is not enabled"
        )
        return [*causes, _forbidden("", text)]
    order = _order_causes(after, before)
    if order:
        return causes + order
    for field in _LISTS:
        for index, (one, was) in enumerate(zip(after.get(field) or (), before.get(field) or (), strict=True)):
            causes += _container_causes(field, index, one, was)
    return causes


def _supported(pod: Json) -> bool:
    """Whether the kubelet reports the resources of its running containers, which old ones do not."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if (status.get("state") or {}).get("running") is not None:
            return "resources" in status
    return True


def _order_causes(after: Json, before: Json) -> list[Cause]:
    causes = []
    for field in _LISTS:
        theirs, ours = after.get(field) or [], before.get(field) or []
        if len(theirs) != len(ours):
            causes.append(_forbidden(f"spec.{field}", f"{field} may not be added or removed on resize"))
            continue
        causes += [
            _forbidden(f"spec.{field}[{index}].name", f"{field} may not be renamed or reordered on resize")
            for index, (their, was) in enumerate(zip(theirs, ours, strict=True))
            if _name(their) != _name(was)
        ]
    return causes


def _container_causes(field: str, index: int, one: Json, was: Json) -> list[Cause]:
    sidecar = was.get("restartPolicy") == "Always"
    if field == "initContainers" and not sidecar:
        same = one == was
        return [] if same else [_forbidden("spec", "resources for non-sidecar init containers are immutable")]
    causes, fixed = [], _fixed(one) == _fixed(was)
    for kind in ("requests", "limits"):
        given, had = ((container.get("resources") or {}).get(kind) or {} for container in (one, was))
        if set(had) - set(given):
            path = f"spec.{field}[{index}].resources.{kind}"
            causes.append(_forbidden(path, f"resource {kind} cannot be removed"))
        others = set(given) | set(had)
        fixed = fixed and all(_same(given.get(name), had.get(name)) for name in others - _MUTABLE)
    if not fixed:
        scope = " for sidecar containers" if field == "initContainers" else ""
        causes.append(_forbidden("spec", f"only cpu and memory resources{scope} are mutable"))
    return causes


def _fixed(container: Json) -> Json:
    resources = {key: value for key, value in (container.get("resources") or {}).items() if key == "claims"}
    return {**{key: value for key, value in container.items() if key != "resources"}, "resources": resources}


def _same(one: Any, other: Any) -> bool:
    try:
        return one is not None and other is not None and parse_quantity(one) == parse_quantity(other)
    except InputError:
        return False


def _forbidden(field: str, text: str) -> Cause:
    return Cause(field, f"Forbidden: {text}", "FieldValueForbidden")

"""The checks of a pod: enough to keep nonsense out, with the texts of a real server.

Called by `pod_rules`. Pure. Fields that no client of this project writes (probes, volumes' sources, security contexts)
are stored unread.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

from cotide_core.errors import InputError
from cotide_core.units import parse_quantity
from cotide_sim.apiserver.refusals import Cause
from cotide_sim.apiserver.registry.resources import Json

_LABEL: Final = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_MAY_CHANGE: Final = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations")
_UPDATE_RULE: Final = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_OPTIONS: Final = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
    "preemptionPolicy": ("Never", "PreemptLowerPriority"),
}


def _required(field: str, why: str = "") -> Cause:
    return Cause(field, f"Required value{': ' + why if why else ''}", "FieldValueRequired")


def _unsupported(field: str, value: Any, options: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{option}"' for option in sorted(options))
    return Cause(field, f'Unsupported value: "{value}": supported values: {listed}', "FieldValueNotSupported")


def pod_causes(pod: Json) -> list[Cause]:
    """Return the faults of a new pod."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return [_required("spec.containers")]
    causes: list[Cause] = []
    names: set[str] = set()
    if not spec.get("containers"):
        causes.append(_required("spec.containers"))
    for field in ("initContainers", "containers"):
        containers = spec.get(field) or []
        if not isinstance(containers, list):
            return [Cause(f"spec.{field}", "Invalid value: must be a list", "FieldValueTypeInvalid")]
        for index, container in enumerate(containers):
            causes += _container_causes(container, f"spec.{field}[{index}]", names)
    for field, options in _OPTIONS.items():
        if spec.get(field) not in (None, *options):
            causes.append(_unsupported(f"spec.{field}", spec[field], options))
    causes += _plain_causes(spec)
    return causes


def _plain_causes(spec: Json) -> list[Cause]:
    causes = []
    for field in ("terminationGracePeriodSeconds", "activeDeadlineSeconds"):
        value = spec.get(field)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            causes.append(Cause(f"spec.{field}", f"Invalid value: {value!r}: must be a whole number of seconds"))
    selector = spec.get("nodeSelector")
    if selector is not None and not (
        isinstance(selector, dict) and all(isinstance(value, str) for value in selector.values())
    ):
        causes.append(Cause("spec.nodeSelector", "Invalid value: must be a map of strings to strings"))
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        path = f"spec.tolerations[{index}]"
        operator = toleration.get("operator") or "Equal"
        if operator not in ("Exists", "Equal"):
            causes.append(_unsupported(f"{path}.operator", operator, ("Exists", "Equal")))
        if operator == "Exists" and toleration.get("value"):
            causes.append(Cause(f"{path}.operator", 'Invalid value: value must be empty when `operator` is "Exists"'))
        if toleration.get("effect") not in (None, "", "NoSchedule", "PreferNoSchedule", "NoExecute"):
            options = ("NoSchedule", "PreferNoSchedule", "NoExecute")
            causes.append(_unsupported(f"{path}.effect", toleration["effect"], options))
    gates = [gate.get("name") for gate in spec.get("schedulingGates") or () if isinstance(gate, dict)]
    if len(set(gates)) < len(gates) or not all(gates):
        causes.append(Cause("spec.schedulingGates", "Invalid value: gates need different names"))
    if gates and spec.get("nodeName"):
        text = "Forbidden: cannot be set until all schedulingGates have been cleared"
        causes.append(Cause("spec.nodeName", text, "FieldValueForbidden"))
    return causes


def _container_causes(container: Any, path: str, names: set[str]) -> list[Cause]:
    if not isinstance(container, dict):
        return [Cause(path, "Invalid value: must be an object", "FieldValueTypeInvalid")]
    causes = []
    name = container.get("name")
    if not name:
        causes.append(_required(f"{path}.name"))
    elif not isinstance(name, str) or not _LABEL.match(name):
        rule = "a lowercase RFC 1123 label must consist of lower case letters, digits or '-'"
        causes.append(Cause(f"{path}.name", f'Invalid value: "{name}": {rule}'))
    elif name in names:
        causes.append(Cause(f"{path}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate"))
    names.add(str(name))
    if not container.get("image"):
        causes.append(_required(f"{path}.image"))
    for index, port in enumerate(container.get("ports") or ()):
        causes += _port_causes(port, f"{path}.ports[{index}]")
    variables = container.get("env") or ()
    causes += [
        _required(f"{path}.env[{index}].name") for index, variable in enumerate(variables) if not variable.get("name")
    ]
    return causes + _resource_causes(container.get("resources") or {}, f"{path}.resources")


def _port_causes(port: Any, path: str) -> list[Cause]:
    if not isinstance(port, dict) or port.get("containerPort") is None:
        return [_required(f"{path}.containerPort")]
    causes = []
    for field in ("containerPort", "hostPort"):
        number = port.get(field)
        if number is not None and not (isinstance(number, int) and 1 <= number <= 65535):
            causes.append(
                Cause(f"{path}.{field}", f"Invalid value: {number!r}: must be between 1 and 65535, inclusive")
            )
    if port.get("protocol") not in (None, "TCP", "UDP", "SCTP"):
        causes.append(_unsupported(f"{path}.protocol", port["protocol"], ("TCP", "UDP", "SCTP")))
    return causes


def _resource_causes(resources: Any, path: str) -> list[Cause]:
    if not isinstance(resources, dict):
        return [Cause(path, "Invalid value: must be an object", "FieldValueTypeInvalid")]
    causes: list[Cause] = []
    amounts: dict[str, dict[str, Decimal]] = {"requests": {}, "limits": {}}
    for field, found in amounts.items():
        given = resources.get(field) or {}
        if not isinstance(given, dict):
            causes.append(Cause(f"{path}.{field}", "Invalid value: must be a map of names to quantities"))
            continue
        for name, quantity in given.items():
            location = f"{path}.{field}[{name}]"
            if name not in _NATIVE and "/" not in name and not name.startswith("hugepages-"):
                causes.append(Cause(location, f'Invalid value: "{name}": must be a standard resource type or fully '
                                    "qualified"))  # fmt: skip
            try:
                found[name] = parse_quantity(quantity)
            except InputError as error:
                causes.append(Cause(location, f'Invalid value: "{quantity}": {error}'))
                continue
            if found[name] < 0:
                text = f'Invalid value: "{quantity}": must be greater than or equal to 0'
                causes.append(Cause(location, text))
            elif "/" in name and found[name] % 1:
                causes.append(Cause(location, f'Invalid value: "{quantity}": must be an integer'))
    for name, wanted in amounts["requests"].items():
        limit = amounts["limits"].get(name)
        location = f"{path}.requests"
        if "/" in name and limit is None:
            text = "Limit must be set for non overcommitable resources"
            causes.append(_required(f"{path}.limits", text))
        elif "/" in name and limit != wanted:
            causes.append(Cause(location, f'Invalid value: "{wanted:f}": must be equal to {name} limit of {limit:f}'))
        elif limit is not None and wanted > limit:
            shown, top = resources["requests"][name], resources["limits"][name]
            text = f'Invalid value: "{shown}": must be less than or equal to {name} limit of {top}'
            causes.append(Cause(location, text))
    return causes


def update_causes(new: Json, old: Json) -> list[Cause]:
    """Return the forbidden changes of an existing pod."""
    after, before = new.get("spec") or {}, old.get("spec") or {}
    if after == before:
        return []
    gated = bool(before.get("schedulingGates"))
    causes = []
    gates = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    added = [gate.get("name") for gate in after.get("schedulingGates") or () if gate.get("name") not in gates]
    if added:
        text = f"Forbidden: only deletion is allowed, but found new scheduling gate '{added[0]}'"
        causes.append(Cause("spec.schedulingGates", text, "FieldValueForbidden"))
    kept = {"schedulingGates", *_MAY_CHANGE, *(("nodeSelector", "affinity") if gated else ())}
    if _fixed_part(after, kept) != _fixed_part(before, kept):
        causes.append(Cause("spec", _UPDATE_RULE, "FieldValueForbidden"))
    tolerations = after.get("tolerations") or []
    if any(toleration not in tolerations for toleration in before.get("tolerations") or ()):
        causes.append(Cause("spec.tolerations", "Forbidden: existing toleration can not be modified except its "
                            "tolerationSeconds", "FieldValueForbidden"))  # fmt: skip
    return causes


def _fixed_part(spec: Json, changeable: set[str]) -> Json:
    """Return the immutable part of a pod's spec."""
    fixed = {key: value for key, value in spec.items() if key not in changeable}
    for field in ("containers", "initContainers"):
        if isinstance(fixed.get(field), list):
            fixed[field] = [
                {key: value for key, value in container.items() if key != "image"}
                for container in fixed[field]
                if isinstance(container, dict)
            ]
    return fixed

"""Defaults and checks of the small built-in kinds.

Called through `kind_rules`. Pure, except for counters read from the cluster.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from cotide_core.errors import InputError
from cotide_core.units import parse_quantity
from cotide_sim.apiserver.cluster import Write
from cotide_sim.apiserver.refusals import Cause

HIGHEST_USER_PRIORITY: Final = 1_000_000_000
"""Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/#priorityclass"""
PREEMPTS: Final = "PreemptLowerPriority"
PREEMPTION_POLICIES: Final = (PREEMPTS, "Never")


_BROKEN: Final = ("cpu", "memory", "storage", "ephemeral-storage")


def default_nothing(write: Write) -> None:
    """Leave the object unchanged."""
    del write


def check_nothing(write: Write) -> list[Cause]:
    """Refuse nothing."""
    del write
    return []


def default_fresh(write: Write) -> None:
    """Drop the status that a client sends with a new object, for kinds where the server owns the status."""
    if write.old is None and write.resource.has_status:
        write.obj.pop("status", None)


def default_namespace(write: Write) -> None:
    """Give a namespace its name as a label, its finalizer and its phase."""
    obj, metadata = write.obj, write.obj["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    if write.old is None:
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}


def default_service(write: Write) -> None:
    """Give a service the type and protocols that clients expect to read back; it gets no address."""
    default_fresh(write)
    obj = write.obj
    spec = obj.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            if isinstance(port, dict):
                port.setdefault("protocol", "TCP")
                port.setdefault("targetPort", port.get("port"))
    if write.old is None:
        obj["status"] = {"loadBalancer": {}}


def write_quantities(amounts: Any) -> None:
    """Write quantities that came as numbers as text, in place: clients read them back as text from any server."""
    if isinstance(amounts, dict):
        for name, quantity in amounts.items():
            if type(quantity) is not str and quantity is not None:
                amounts[name] = str(quantity)


def default_node(write: Write) -> None:
    """Write a node's amounts as text; status is taken from a new node as it is, since kubelets register with it."""
    status = write.obj.get("status") or {}
    for field in ("capacity", "allocatable"):
        write_quantities(status.get(field))


def default_secret(write: Write) -> None:
    """Move `stringData` into `data`, encoded, as the server does for every write."""
    obj = write.obj
    plain = obj.pop("stringData", None)
    if isinstance(plain, dict) and plain:
        data = obj["data"] = obj.get("data") or {}
        data.update({key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()})
    obj.setdefault("type", "Opaque")


def check_priority_class(write: Write) -> list[Cause]:
    """Refuse a value out of range, and a change of the value or of the preemption policy."""
    obj, old = write.obj, write.old
    value = obj.get("value", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        return [Cause("value", f"Invalid value: {value!r}: must be a whole number")]
    if value > HIGHEST_USER_PRIORITY and not obj["metadata"]["name"].startswith("system-"):
        return [Cause("value", f"Forbidden: maximum allowed value of a user defined priority is "
                      f"{HIGHEST_USER_PRIORITY}", "FieldValueForbidden")]  # fmt: skip
    if old is not None and old.get("value", 0) != value:
        return [Cause("value", "Forbidden: may not be changed in an update.", "FieldValueForbidden")]
    policy = obj["preemptionPolicy"]
    if policy not in PREEMPTION_POLICIES:
        return [Cause("preemptionPolicy", f"Unsupported value: {policy!r}: supported values: "
                      + ", ".join(f'"{text}"' for text in PREEMPTION_POLICIES), "FieldValueNotSupported")]  # fmt: skip
    if old is not None and old.get("preemptionPolicy", PREEMPTS) != policy:
        return [Cause("preemptionPolicy", f"Invalid value: {policy!r}: field is immutable")]
    return []


def default_priority_class(write: Write) -> None:
    """Let pods of a class preempt others where it gives no policy."""
    if write.obj.get("preemptionPolicy") is None:
        write.obj["preemptionPolicy"] = PREEMPTS


def _is_count(value: Any) -> bool:
    if isinstance(value, str):
        digits = value.removesuffix("%")
        return digits != value and digits.isascii() and digits.isdigit() and len(digits) <= 3 and int(digits) <= 100
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_budget(write: Write) -> list[Cause]:
    """Refuse a budget with both bounds, or with one that is not a count."""
    spec = write.obj.get("spec") or {}
    bounds = [field for field in ("minAvailable", "maxUnavailable") if spec.get(field) is not None]
    causes = [
        Cause(f"spec.{field}", f"Invalid value: {spec[field]!r}: must be a count or a percentage, such as 1 or 50%")
        for field in bounds
        if not _is_count(spec[field])
    ]
    for index, term in enumerate((spec.get("selector") or {}).get("matchExpressions") or ()):
        if term.get("operator") not in ("In", "NotIn", "Exists", "DoesNotExist"):
            text = f'Invalid value: "{term.get("operator")}": not a valid selector operator'
            causes.append(Cause(f"spec.selector.matchExpressions[{index}].operator", text))
    if len(bounds) == 2:
        causes.append(Cause("spec", "Invalid value: minAvailable and maxUnavailable cannot be both set"))
    return causes


def check_lease(write: Write) -> list[Cause]:
    """Refuse a lease without duration, and transitions below 0."""
    spec = write.obj.get("spec") or {}
    causes = []
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        causes.append(Cause("spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0"))
    if transitions is not None and transitions < 0:
        text = f"Invalid value: {transitions}: must be greater than or equal to 0"
        causes.append(Cause("spec.leaseTransitions", text))
    return causes


def check_quota(write: Write) -> list[Cause]:
    """Refuse bounds below 0; those of cpu, memory and storage may be fractions, all others may not."""
    causes = []
    for name, bound in ((write.obj.get("spec") or {}).get("hard") or {}).items():
        try:
            amount = parse_quantity(bound)
        except InputError as error:
            causes.append(Cause(f"spec.hard[{name}]", f"Invalid value: {bound!r}: {error}"))
            continue
        if amount < 0:
            causes.append(Cause(f"spec.hard[{name}]", f"Invalid value: {bound!r}: must be greater than or equal to 0"))
        elif amount % 1 and not name.removeprefix("requests.").removeprefix("limits.").startswith(_BROKEN):
            causes.append(Cause(f"spec.hard[{name}]", f"Invalid value: {bound!r}: must be an integer"))
    return causes


def check_service(write: Write) -> list[Cause]:
    """Refuse invalid ports."""
    causes = []
    ports = (write.obj.get("spec") or {}).get("ports") or []
    for index, port in enumerate(ports if isinstance(ports, list) else []):
        number = port.get("port") if isinstance(port, dict) else None
        if not isinstance(number, int) or not 1 <= number <= 65535:
            causes.append(Cause(f"spec.ports[{index}].port", f"Invalid value: {number!r}: must be 1 to 65535"))
    return causes


def check_node(write: Write) -> list[Cause]:
    """Refuse capacities that are not quantities, and a changed provider id."""
    causes = []
    before = ((write.old or {}).get("spec") or {}).get("providerID")
    if before and (write.obj.get("spec") or {}).get("providerID", "") != before:
        text = 'Forbidden: node updates may not change providerID except from "" to valid'
        causes.append(Cause("spec.providerID", text, "FieldValueForbidden"))
    status = write.obj.get("status") or {}
    for field in ("capacity", "allocatable"):
        for name, quantity in (status.get(field) or {}).items():
            try:
                parse_quantity(quantity)
            except InputError as error:
                causes.append(Cause(f"status.{field}[{name}]", f"Invalid value: {quantity!r}: {error}"))
    return causes

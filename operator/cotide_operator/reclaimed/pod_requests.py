"""A pod's requests for cpu and memory, turned into requests for reclaimed capacity.

`child_pods` calls it for the pods of our Jobs, and the admission webhook for others. Pure: the input is not changed. An
extended resource is a whole number, and its request equals its limit. So a container asks for
``cotide.dev/reclaimed-cpu`` in millicores and ``cotide.dev/reclaimed-memory`` in bytes, and names neither cpu nor
memory. The kernel then runs it as BestEffort: online pods win any contention. A limit above the request is lost.

Invariant: all of a pod is turned, or none. A pod asks for plain cpu and memory, or for reclaimed, never for some of
each. A pod stays unchanged if it names reclaimed capacity itself, or has pod-level ``resources``, which take no
extended resource.

Source: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cotide_core.errors import InputError
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY, parse_quantity, resource_amount

Json = dict[str, Any]

RECLAIMED: Final[Mapping[str, str]] = {CPU: RECLAIMED_CPU, MEMORY: RECLAIMED_MEMORY}
_LISTS: Final = ("initContainers", "containers")
_KINDS: Final = ("limits", "requests")
"""In this order: a given request counts; a limit replaces a missing one (the API server's own default)."""

MOST: Final = 2**53
"""Cores or bytes of one container: 8 PiB; chosen far below the limit of 64 bits in millicores."""


def reclaimed(pod_spec: Json) -> Json:
    """Return the pod spec with reclaimed requests; a spec without a possible or necessary change is returned as it is.

    Raises
    ------
    InputError
        When an amount can't be read; names the field.
    """
    changed = _changed(pod_spec)
    if not changed:
        return pod_spec
    spec = dict(pod_spec)
    for name in _LISTS:
        if name in spec:
            spec[name] = list(spec[name])
    for (name, index), resources in changed.items():
        spec[name][index] = {**spec[name][index], "resources": resources}
    return spec


def reclaim_patch(pod: Json) -> list[Json]:
    """Return the JSON patch (RFC 6902) of a whole Pod that does the work of `reclaimed`; empty without a change.

    Raises
    ------
    InputError
        When an amount can't be read; names the field.
    """
    changed = _changed(pod.get("spec") or {})
    return [
        {"op": "replace", "path": f"/spec/{name}/{index}/resources", "value": resources}
        for (name, index), resources in changed.items()
    ]


def names_reclaimed(pod_spec: Mapping[str, Any]) -> bool:
    """Whether any container asks for reclaimed capacity already."""
    return any(
        resource in _mapping(_mapping(container.get("resources")).get(kind))
        for _, _, container in _containers(pod_spec)
        for kind in _KINDS
        for resource in RECLAIMED.values()
    )


def _changed(spec: Mapping[str, Any]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return the new resources of each changed container, by list and index."""
    if spec.get("resources") or names_reclaimed(spec):
        return {}
    changed: dict[tuple[str, int], Mapping[str, Any]] = {}
    for name, index, container in _containers(spec):
        before = _mapping(container.get("resources"))
        after = _translated(before, f"spec.{name}[{index}].resources")
        if after != before:
            changed[name, index] = after
    return changed


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    for name in _LISTS:
        listed = spec.get(name)
        for index, container in enumerate(listed if isinstance(listed, list) else ()):
            yield name, index, _mapping(container)


def _mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping; another value counts as empty, and the API server reports its fault."""
    return value if isinstance(value, Mapping) else {}


def _translated(resources: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    plain = [(kind, name) for kind in _KINDS for name in _mapping(resources.get(kind)) if name in RECLAIMED]
    asked: dict[str, int] = {}
    for kind, name in plain:
        asked[RECLAIMED[name]] = _amount(name, resources[kind][name], f"{field}.{kind}.{name}")
    if not plain:
        return resources
    # Zero asks for nothing, and an extended resource of zero would only distract a reader.
    amounts = {name: str(amount) for name, amount in asked.items() if amount}
    translated = dict(resources)
    for kind in _KINDS:
        kept = {name: value for name, value in _mapping(resources.get(kind)).items() if name not in RECLAIMED}
        if kept or amounts:
            translated[kind] = {**kept, **amounts}
        else:
            translated.pop(kind, None)
    return translated


def _amount(resource: str, quantity: Any, field: str) -> int:
    try:
        value = parse_quantity(quantity)
    except (InputError, TypeError) as error:
        raise InputError(str(error), field=field) from None
    if not 0 <= value < MOST:
        raise InputError(f"{quantity!r} is not an amount that a node could have", field=field)
    return resource_amount(resource, quantity)

"""The lists of the built-in kinds that are merged by a key, and their keys.

Called by `strategic_patch` and `field_sets` (server-side apply): both treat such a list as a map.

Source: `x-kubernetes-patch-merge-key` and `x-kubernetes-list-map-keys` in the API reference of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "podIPs": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "schedulingGates": ("name",),
    "resourceClaims": ("name",),
    "conditions": ("type",),
    "addresses": ("type",),
    "ownerReferences": ("uid",),
    "secrets": ("name",),
    "webhooks": ("name",),
}
_SETS: Final = frozenset({"finalizers", "podCIDRs"})
"""Lists of plain values that merge as sets."""


def merge_keys(field: str, *lists: Sequence[Any] | None) -> tuple[str, ...] | None:
    """Return the merge keys of a list: empty for a set of plain values, None for a list that is replaced.

    The fields of ports distinguish them: a container's merge by `containerPort`, a service's by `port`.
    """
    if field in _SETS:
        return ()
    if field == "ports":
        items = [item for items in lists for item in items or () if isinstance(item, dict)]
        return ("containerPort",) if any("containerPort" in item for item in items) else ("port",)
    return _KEYS.get(field)

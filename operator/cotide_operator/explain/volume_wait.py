"""The volumes that a decided but unbound pod waits for: the node, the claims, and the drivers of the volumes.

`explanation` calls it with the pod's claims and their storage classes as plain objects. While a pod waits for its
volumes it has no note of its own: its claims contain all facts. Invariant: bound claims are not named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotide_core.limits import MAX_CLAIMS
from cotide_core.units import format_seconds
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.translation.volumes.claims import BETA_CLASS, BIND_COMPLETED, SELECTED_NODE

Object = Mapping[str, Any]
Facts = list[tuple[str, str]]

_MANAGED: Final = f"f:{SELECTED_NODE}"
"""The annotation in ``managedFields``; its entry has the time of its last change."""
BOUND_OF_WAIT: Final = "for volumes.bindTimeoutSeconds of the operator's configuration at most (600 s by default)"


def claim_names_of(pod: Object) -> list[str]:
    """Return the names of the claims of a pod without a node, at most the limit."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return []
    found: dict[str, None] = {}
    for volume in spec.get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim is not None:
            found[str(claim.get("claimName", ""))] = None
        elif volume.get("ephemeral") is not None:
            found[f"{pod['metadata']['name']}-{volume.get('name', '')}"] = None
    return [name for name in found if name][:MAX_CLAIMS]


def class_of(claim: Object) -> str:
    """Return the name of a claim's storage class; empty for none."""
    annotations = claim["metadata"].get("annotations") or {}
    return str(annotations.get(BETA_CLASS) or (claim.get("spec") or {}).get("storageClassName") or "")


def volume_wait_facts(
    claims: Sequence[Object], classes: Mapping[str, Object], now_seconds: float
) -> tuple[Facts, dict[str, Any]]:
    """Return the volumes that a pod without a node waits for, in words and for programs; empty while no claim has a
    node."""
    waiting = [claim for claim in claims if not _is_bound(claim)]
    nodes = dict.fromkeys(node for claim in waiting if (node := _node(claim)))
    if not nodes:
        return [], {}
    facts: Facts = [("Decided on", f"{', '.join(nodes)}; it is bound when its volumes are, {BOUND_OF_WAIT}")]
    facts += [("Waits for", _sentence(claim, classes, now_seconds)) for claim in waiting]
    rows = [
        {
            "claim": claim["metadata"]["name"],
            "node": _node(claim) or None,
            "storageClass": class_of(claim) or None,
            "driver": _driver(claim, classes) or None,
            "since": _since(claim),
        }
        for claim in waiting
    ]
    return facts, {"volumes": rows}


def _sentence(claim: Object, classes: Mapping[str, Object], now_seconds: float) -> str:
    driver, since = _driver(claim, classes), _since(claim)
    words = f"a volume for claim {claim['metadata']['name']}"
    if driver:
        words += f", which driver {driver} makes"
    if since is not None:
        words += f", since {since} ({format_seconds(max(0.0, now_seconds - parse_timestamp(since)))})"
    return words


def _is_bound(claim: Object) -> bool:
    annotations = claim["metadata"].get("annotations") or {}
    return bool((claim.get("spec") or {}).get("volumeName")) and BIND_COMPLETED in annotations


def _node(claim: Object) -> str:
    return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))


def _driver(claim: Object, classes: Mapping[str, Object]) -> str:
    return str((classes.get(class_of(claim)) or {}).get("provisioner", ""))


def _since(claim: Object) -> str | None:
    """Return when the claim got its node, if the API server records it."""
    for entry in claim["metadata"].get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        if _MANAGED in (fields.get("f:annotations") or {}):
            return str(entry["time"]) if entry.get("time") else None
    return None

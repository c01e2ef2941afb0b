"""Translates a pod's scheduling constraints: the supported ones to core values, the others to field paths.

`translation` calls it. Invariant: a required constraint is either translated or named in `unsupported_fields`, never
dropped. `pod_rules` translates rules about other pods and preferences, and `volumes` the demands of volumes.
"""

from __future__ import annotations

from typing import Final

from cotide_core.events import HostPort, NodeTerm, Toleration
from cotide_core.limits import (
    FIELDS_NAMED,
    IMAGE_CHARACTERS,
    MAX_CLAIMS,
    MAX_GATES,
    MAX_HOST_PORTS,
    MAX_IMAGES_NAMED,
    MAX_REQUIREMENTS,
    MAX_TOLERATIONS,
)
from cotide_kube.objects import Affinity, PodSpec, Volume
from cotide_operator.translation.node_terms import alternatives
from cotide_operator.translation.pod_rules import REQUIRED, rule_faults

_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
DEFAULT_TOLERATIONS: Final = (
    Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"),
    Toleration("node.kubernetes.io/unreachable", "Exists", "", "NoExecute"),
)
"""Tolerations that the admission plugin DefaultTolerationSeconds adds to each pod; harmless on a server without it."""


def node_terms(affinity: Affinity | None) -> tuple[NodeTerm, ...]:
    """Return the alternatives of required node affinity; empty when there is none."""
    if affinity is None or affinity.node_affinity is None:
        return ()
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return alternatives(required)


def tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    """Return a pod's tolerations with the default ones that a server would have added."""
    own = tuple(Toleration(item.key, item.operator or "Equal", item.value, item.effect) for item in spec.tolerations)
    named = {(item.key, item.effect) for item in own} | {(item.key, "NoExecute") for item in own if not item.effect}
    return own + tuple(item for item in DEFAULT_TOLERATIONS if (item.key, item.effect) not in named)


def asked_images(spec: PodSpec) -> tuple[str, ...]:
    """Return the images of all containers, init containers included, sorted; empty with too many containers.

    Each counts as often as it is named; a name that is too long becomes an empty one, which no node has.
    """
    containers = (*spec.init_containers, *spec.containers)
    if len(containers) > MAX_IMAGES_NAMED:
        return ()
    return tuple(
        sorted(
            _with_tag(container.image) if len(container.image) <= IMAGE_CHARACTERS else "" for container in containers
        )
    )


def _with_tag(name: str) -> str:
    """Return a name with the default tag if it has none; the host of a registry may have a port."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of a pod; with ``hostNetwork`` each container port is one."""
    ports = [
        HostPort(port.protocol or "TCP", port.host_ip or "0.0.0.0", number)  # noqa: S104 - a match rule, no socket
        for container in (*spec.containers, *(item for item in spec.init_containers if item.restart_policy == "Always"))
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0))
    ]
    return tuple(ports)


def unsupported_fields(spec: PodSpec) -> tuple[str, ...]:
    """Return the paths of unsupported required constraints: such a pod stays pending, with the paths as its reason."""
    paths: list[str] = []
    if spec.affinity is not None:
        paths += _unsupported_affinity(spec.affinity)
    paths += rule_faults(spec)
    paths += _too_many(spec)
    paths += _disks(spec)
    if spec.resource_claims:
        paths.append("spec.resourceClaims")
    return _named(paths)


def claim_fields(spec: PodSpec) -> tuple[str, ...]:
    """Return the paths of volumes that are claims: without the claims themselves they can't be judged."""
    paths = []
    for index, volume in enumerate(spec.volumes):
        if volume.persistent_volume_claim is not None:
            paths.append(f"spec.volumes[{index}].persistentVolumeClaim")
        if volume.ephemeral is not None:
            paths.append(f"spec.volumes[{index}].ephemeral")
    return _named(paths)


def _disks(spec: PodSpec) -> list[str]:
    """Return the paths of volumes that name a disk with at most one writer on a node, or in the cluster."""
    kinds = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")
    fields = ("gce_persistent_disk", "aws_elastic_block_store", "iscsi", "rbd")
    return [
        f"spec.volumes[{index}].{kind}"
        for index, volume in enumerate(spec.volumes)
        for kind, name in zip(kinds, fields, strict=True)
        if getattr(volume, name) is not None
    ]


def _named(paths: list[str]) -> tuple[str, ...]:
    if len(paths) > FIELDS_NAMED:
        return (*paths[:FIELDS_NAMED], f"{len(paths) - FIELDS_NAMED} more")
    return tuple(paths)


def _too_many(spec: PodSpec) -> list[str]:
    """Return the fields with more entries than are checked for every node."""
    terms = f"spec.nodeSelector and spec.affinity.nodeAffinity.{REQUIRED}"
    counts = (
        (terms, _selected(spec), MAX_REQUIREMENTS),
        ("spec.tolerations", len(spec.tolerations), MAX_TOLERATIONS),
        ("hostPorts", len(host_ports(spec)), MAX_HOST_PORTS),
        ("spec.schedulingGates", len(spec.scheduling_gates), MAX_GATES),
        ("claims in spec.volumes", sum(map(_is_claim, spec.volumes)), MAX_CLAIMS),
    )
    return [f"{name} (more than {most} entries)" for name, count, most in counts if count > most]


def _is_claim(volume: Volume) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None


def _selected(spec: PodSpec) -> int:
    """Return the number of entries that select nodes; beyond `MAX_REQUIREMENTS` the rest is not counted."""
    selected = 2 * len(spec.node_selector)
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        selected += 1 + sum(1 + len(expression.values) for expression in (*term.match_expressions, *term.match_fields))
        if selected > MAX_REQUIREMENTS:
            break
    return selected


def _unsupported_affinity(affinity: Affinity) -> list[str]:
    paths: list[str] = []
    if affinity.node_affinity is None:
        return paths
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms[:MAX_REQUIREMENTS] if required else ()
    base = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    for index, term in enumerate(terms):
        paths += [
            f"{base}[{index}].matchExpressions[{position}].operator"
            for position, expression in enumerate(term.match_expressions)
            if expression.operator not in _OPERATORS
        ]
        paths += [
            f"{base}[{index}].matchFields[{position}]"
            for position, expression in enumerate(term.match_fields)
            if expression.key != "metadata.name" or expression.operator not in ("In", "NotIn")
        ]
    return paths

"""Facts that follow from a pod's spec alone, computed once for all pods of one template.

`translation` calls it for each change of each pod. Thousands of pods share a template, and a pod changes several times
in its life, mostly in its metadata and status; so the results are cached by the content of the spec. Invariant: two
specs with the same cached result agree in every field that is read below; the node is not one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from cotide_core.events import HostPort, NodeTerm, PodRules, Toleration
from cotide_core.limits import FIELDS_NAMED, MAX_HOST_PORTS
from cotide_core.state.remembered import Remembered
from cotide_core.units import RECLAIMED_CPU, RECLAIMED_MEMORY
from cotide_kube.objects import PodSpec, PodStatus, Volume
from cotide_operator.translation.constraints import (
    asked_images,
    claim_fields,
    host_ports,
    node_terms,
    tolerations,
    unsupported_fields,
)
from cotide_operator.translation.pod_requests import effective_requests, resized
from cotide_operator.translation.pod_rules import pod_rules, rule_faults

KEPT: Final = 1024
"""Templates of a generation; chosen: about 2 MB."""
KEPT_BYTES: Final = 32 * 1024 * 1024
KEPT_LARGEST_BYTES: Final = 64 * 1024
"""Bytes of the keys of a generation, and of the largest cached key; chosen: a pod may be as large as 1.5 MB."""
_encode: Final = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class SpecFacts:
    """See the fields of the same names of `events.Pod`."""

    requests: tuple[tuple[str, int], ...] = ()
    unrequested: tuple[int, int] = (0, 0)
    """Millicores and bytes."""
    host_ports: tuple[HostPort, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    gates: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    rules: PodRules | None = None
    claims: tuple[str, ...] = ()
    """Paths of its claims, which need a look-up: see `volumes`."""
    images: tuple[str, ...] = ()
    reclaims: bool = False
    """Whether it requests reclaimed capacity, which decides its class if nothing else does."""


class SpecReader:
    """Cached facts, by the content of specs."""

    def __init__(self) -> None:
        self._known: Remembered[bytes, SpecFacts] = Remembered(KEPT, KEPT_BYTES)

    def __call__(self, spec: PodSpec, status: PodStatus | None = None) -> SpecFacts:
        """Return the facts of a spec; an unreadable request is one of the unsupported fields.

        Parameters
        ----------
        status : of the pod; it counts while a kubelet holds other amounts than the spec requests (KEP-1287).
        """
        if status is not None and not resized(spec, status):
            status = None
        key = _key(spec) if status is None else _key(spec) + _resize_key(status)
        known = self._known.get(key)
        if known is None:
            known = _facts(spec, status)
            if len(key) <= KEPT_LARGEST_BYTES:
                self._known.make_room()
                self._known.keep(key, known, len(key))
        return known


def reclaims(spec: PodSpec) -> bool:
    """Return whether a pod requests reclaimed capacity."""
    return any(
        name in (RECLAIMED_CPU, RECLAIMED_MEMORY)
        for container in (*spec.containers, *spec.init_containers)
        for name in (*container.resources.requests, *container.resources.limits)
    )


def _resize_key(status: PodStatus) -> bytes:
    held = [
        (container_status.name, container_status.resources, container_status.allocated_resources)
        for container_status in status.container_statuses
    ]
    inits = [
        (init_container_status.name, init_container_status.resources, init_container_status.allocated_resources)
        for init_container_status in status.init_container_statuses
    ]
    pending = [
        (condition.status, condition.reason) for condition in status.conditions if condition.type == "PodResizePending"
    ]
    return _encode((held, inits, status.resources, status.allocated_resources, pending, status.resize))


def _key(spec: PodSpec) -> bytes:
    return _encode(
        (
            spec.containers,
            spec.init_containers,
            spec.overhead,
            spec.resources,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.scheduling_gates,
            [
                (volume.persistent_volume_claim is not None, volume.ephemeral is not None, _disk(volume))
                for volume in spec.volumes
            ],
            spec.resource_claims,
            spec.host_network,
        )
    )


def _disk(volume: Volume) -> int:
    disks = (volume.gce_persistent_disk, volume.aws_elastic_block_store, volume.iscsi, volume.rbd)
    return next((number for number, disk in enumerate(disks, start=1) if disk is not None), 0)


def _facts(spec: PodSpec, status: PodStatus | None) -> SpecFacts:
    requests = effective_requests(spec, status)
    faults = [fault if fault.startswith(("spec.", "status")) else f"spec.{fault}" for fault in requests.faults]
    if len(faults) > FIELDS_NAMED:
        faults[FIELDS_NAMED:] = [f"{len(faults) - FIELDS_NAMED} more"]
    unsupported = (*unsupported_fields(spec), *faults)
    taken = tuple(host_ports(spec)[:MAX_HOST_PORTS])
    if unsupported:  # no node is searched for such a pod: its constraints may be too many to check
        # A pod that already has a node, by any scheduler, still repels others.
        rules = None if rule_faults(spec) else pod_rules(spec)
        return SpecFacts(
            requests=requests.amounts,
            unrequested=requests.unrequested,
            host_ports=taken,
            unsupported=unsupported,
            rules=rules,
            claims=claim_fields(spec),
            reclaims=reclaims(spec),
        )
    return SpecFacts(
        requests=requests.amounts,
        unrequested=requests.unrequested,
        host_ports=taken,
        node_selector=tuple(sorted(spec.node_selector.items())),
        node_terms=node_terms(spec.affinity),
        tolerations=tolerations(spec),
        gates=tuple(gate.name for gate in spec.scheduling_gates),
        rules=pod_rules(spec),
        claims=claim_fields(spec),
        images=asked_images(spec),
        reclaims=reclaims(spec),
    )

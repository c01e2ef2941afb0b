"""What follows from a pod's spec alone, worked out once for all pods of one template.

Called by `translation` for each change of each pod. Thousands of pods share a template, and a pod changes several times
in its life, mostly in its metadata and status; so the answers are kept by what the spec says. Invariant: two specs with
the same answer here agree in every field that is read below; the node is not one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from cotide_core.errors import InputError
from cotide_core.events import HostPort, NodeTerm, Toleration
from cotide_kube.objects import PodSpec
from cotide_operator.translation.constraints import host_ports, node_terms, tolerations, unsupported_fields
from cotide_operator.translation.pod_requests import effective_requests

KEPT: Final = 4096
"""Templates that are remembered before all are worked out again; chosen: about 8 MB."""
_encode: Final = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class SpecFacts:
    """See the fields of the same names of `events.Pod`."""

    requests: tuple[tuple[str, int], ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    gates: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()


class SpecReader:
    """Answers, by what specs say."""

    def __init__(self) -> None:
        self._known: dict[bytes, SpecFacts] = {}

    def __call__(self, spec: PodSpec) -> SpecFacts:
        """Return the facts of a spec; a request that can't be read is one of the unsupported fields."""
        key = _key(spec)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            known = self._known[key] = _facts(spec)
        return known


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
            spec.volumes,
            spec.resource_claims,
            spec.host_network,
        )
    )


def _facts(spec: PodSpec) -> SpecFacts:
    faults: list[str] = []
    requests: tuple[tuple[str, int], ...] = ()
    try:
        requests = effective_requests(spec)
    except InputError as error:
        faults.append(f"spec.containers.resources ({error})")
    return SpecFacts(
        requests=requests,
        host_ports=host_ports(spec),
        node_selector=tuple(sorted(spec.node_selector.items())),
        node_terms=node_terms(spec.affinity),
        tolerations=tolerations(spec),
        gates=tuple(gate.name for gate in spec.scheduling_gates),
        unsupported=(*unsupported_fields(spec), *faults),
    )

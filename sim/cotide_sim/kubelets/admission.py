"""Whether a pod fits on its node, with the checks and the wording of a kubelet.

Called by `residents` when a bound pod is first seen. It catches a scheduler that works from stale or wrong numbers: the
pod fails with ``OutOfcpu`` and the like, and its owner must create another one. Pure.

The order of the checks and their texts are those of the kubelet's general predicates (pods, cpu, memory, then the rest;
node selector and affinity; NoExecute taints):
https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/lifecycle/predicate.go
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cotide_core.units import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, resource_amount
from cotide_kube.objects import Container, PodSpec, Quantity, TaintObject, TolerationObject
from cotide_sim.kubelets.node_affinity import wants_node

_FIRST: Final = (PODS, CPU, MEMORY, EPHEMERAL_STORAGE)
PRESSURE_ANNOTATION: Final = "cotide.dev/fake-pressure"
"""On a fake node: its kubelet is under this pressure (for example ``DiskPressure``) and has not reported it in its
status yet.
"""

Amounts = Mapping[str, int]
"""Resource to engine integer: millicores for cpu, bytes, pieces."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a kubelet refuses a pod: ``status.reason`` and ``status.message`` of the failed pod."""

    reason: str
    message: str


@dataclass(slots=True)
class NodeRoom:
    """The capacity of one node and the part that its pods have taken; ``taken`` never includes finished pods."""

    name: str
    allocatable: dict[str, int]
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[TaintObject, ...] = ()
    pressure: str = ""
    """The condition that its kubelet is under; empty for none."""
    taken: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def take(self, requests: Amounts) -> None:
        """Add a pod's requests."""
        for name, amount in requests.items():
            self.taken[name] += amount
        self.taken[PODS] += 1

    def give_back(self, requests: Amounts) -> None:
        """Subtract a pod's requests."""
        for name, amount in requests.items():
            self.taken[name] -= amount
        self.taken[PODS] -= 1

    def refusal(self, spec: PodSpec, requests: Amounts) -> Refusal | None:
        """Return why the pod cannot run here, or None when it can."""
        if self.pressure and (self.pressure != "MemoryPressure" or not (requests.get(CPU) or requests.get(MEMORY))):
            # Under memory pressure alone a kubelet still takes pods with a request.
            return Refusal("Evicted", f"Pod was rejected: The node had condition: [{self.pressure}]. ")
        wanted = {**requests, PODS: 1}
        rest = sorted(name for name in wanted if name not in _FIRST)
        for name in (*_FIRST, *rest):
            amount = wanted.get(name, 0)
            # A kubelet ignores extended resources that no device plugin of its node announced.
            capacity = self.allocatable.get(name)
            if not amount or (capacity is None and name in rest):
                continue
            if self.taken[name] + amount > (capacity or 0):
                return Refusal(
                    f"OutOf{name}",
                    f"Pod was rejected: Node didn't have enough resource: {name}, requested: {amount}, "
                    f"used: {self.taken[name]}, capacity: {capacity or 0}",
                )
        if not wants_node(spec, self.name, self.labels):
            return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
        for taint in self.taints:
            if taint.effect == "NoExecute" and not any(tolerates(toleration, taint) for toleration in spec.tolerations):
                return _predicate("TaintToleration", f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}")
        return None


def _predicate(name: str, description: str) -> Refusal:
    return Refusal(name, f"Pod was rejected: Predicate {name} failed: {description}")


def tolerates(toleration: TolerationObject, taint: TaintObject) -> bool:
    """Return whether a toleration covers a taint; an empty key with Exists covers all, an empty effect any."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return (toleration.key, toleration.value) == (taint.key, taint.value)


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Return the requests of a pod as a whole, per resource, as the API defines them.

    Containers run together, sidecars (restartable init containers) with them. Other init containers run one after
    another before, together with the sidecars started so far: the larger of both counts. Overhead comes on top. Source:
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _container_requests(container))
    if spec.init_containers:
        total = _with_init_containers(total, spec.init_containers)
    if spec.resources is not None:
        # Pod-level requests replace those of the containers where they are given.
        total |= _amounts(spec.resources.requests)
    _add(total, _amounts(spec.overhead))
    return total


def _with_init_containers(together: dict[str, int], init_containers: Iterable[Container]) -> dict[str, int]:
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init_containers:
        asked = _container_requests(container)
        if container.restart_policy == "Always":
            _add(sidecars, asked)
        else:
            _add(asked, sidecars)
            peak = {name: max(peak.get(name, 0), asked.get(name, 0)) for name in {**peak, **asked}}
    _add(together, sidecars)
    return {name: max(together.get(name, 0), peak.get(name, 0)) for name in {**together, **peak}}


def _container_requests(container: Container) -> dict[str, int]:
    # A limit without a request counts as the request: the API server's own default.
    return _amounts({**container.resources.limits, **container.resources.requests})


def _amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: resource_amount(name, quantity) for name, quantity in quantities.items()}


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount

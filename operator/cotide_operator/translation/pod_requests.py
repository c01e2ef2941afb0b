"""The requests of a pod: the sum that kube-scheduler and the kubelet compute.

`pod_spec` calls it. Invariant: never less than the kubelet's own sum; otherwise the kubelet would refuse pods that are
bound here (OutOfcpu). While a container is resized in place, it counts with the largest of its spec's request, the
amount that the kubelet has set, and the amount that it has allocated. If the kubelet has reported the resize as
infeasible, the spec does not count.

Sources: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers,
KEP-1287 (in-place update of pod resources; "Scheduler and API server interaction") and KEP-5419 (the same of pod-level
resources).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cotide_core.errors import InputError
from cotide_core.limits import MAX_EXACT_INT, MAX_RESOURCES
from cotide_core.units import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    RECLAIMED_CPU,
    RECLAIMED_MEMORY,
    bounded_amount,
    resource_amount,
)
from cotide_kube.objects import Container, ContainerStatus, PodSpec, PodStatus, Quantity, Resources

Amounts = dict[str, int]
_NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)
SCORED_WITHOUT_REQUEST: Final = {CPU: 100, MEMORY: 200 * 1024 * 1024}
"""Millicores and bytes that scores count for a container without a request (k8s.io/kubernetes,
pkg/scheduler/util/pod_resources.go)."""


@dataclass(frozen=True, slots=True)
class EffectiveRequests:
    """Requests of a pod.

    Attributes
    ----------
    amounts : (resource, amount) sorted by name, without zeros, each clamped to 0 ... `limits.MAX_EXACT_INT`.
    faults : paths of amounts that are unreadable or too large, each with the error.
    unrequested : millicores and bytes that scores count beyond the amounts, for containers without a request.
    """

    amounts: tuple[tuple[str, int], ...] = ()
    faults: tuple[str, ...] = ()
    unrequested: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class _Reading:
    """The faults found while one pod is read; each field appears once."""

    faults: dict[str, None] = field(default_factory=dict)

    def amounts(self, quantities: Mapping[str, Quantity], path: str) -> Amounts:
        """Return amounts that are counted exactly; with too many only those that nodes commonly offer."""
        if len(quantities) > MAX_RESOURCES:
            self.faults[f"{path} ({len(quantities)} resources, at most {MAX_RESOURCES} are)"] = None
            kept = [*(name for name in _NATIVE if name in quantities), *sorted(quantities)[:MAX_RESOURCES]]
            quantities = {name: quantities[name] for name in kept}
        amounts: Amounts = {}
        for name, quantity in quantities.items():
            try:
                amounts[name] = resource_amount(name, quantity)
            except InputError as error:
                self.faults[f"{path}[{name[:64]}] ({error})"] = None
                amounts[name] = self._clamped(name, quantity)
            if amounts[name] < 0:
                self.faults[f"{path}[{name[:64]}] ({quantity!r} is negative)"] = None
                amounts[name] = 0
        return amounts

    @staticmethod
    def _clamped(name: str, quantity: Quantity) -> int:
        try:
            return bounded_amount(name, quantity)
        except InputError:
            return 0


def effective_requests(spec: PodSpec, status: PodStatus | None = None) -> EffectiveRequests:
    """Return the requests of a pod.

    For each resource the sum is the larger of two values: all containers plus all sidecars; and, for each ordinary init
    container, its own request plus the sidecars before it. Pod-level requests replace that sum if they exist; overhead
    is added at the end.

    Parameters
    ----------
    status : of the pod; its kubelet may have set or allocated other amounts than the spec requests; see `resized`.
    """
    reading = _Reading()
    running = _total(reading, spec, status, {})
    amounts = tuple(sorted((name, min(amount, MAX_EXACT_INT)) for name, amount in running.items() if amount))
    beyond = [f"requests[{name}] (together beyond 2^53)" for name, amount in running.items() if amount > MAX_EXACT_INT]
    return EffectiveRequests(amounts, (*reading.faults, *beyond), _unrequested(spec, status, running))


def _unrequested(spec: PodSpec, status: PodStatus | None, asked: Amounts) -> tuple[int, int]:
    """Return the amounts that scores count beyond the requests: none for pods with reclaimed capacity."""
    if asked.get(RECLAIMED_CPU) or asked.get(RECLAIMED_MEMORY):
        return 0, 0
    counted = _total(_Reading(), spec, status, SCORED_WITHOUT_REQUEST)
    cpu, memory = (
        min(counted.get(name, 0), MAX_EXACT_INT) - min(asked.get(name, 0), MAX_EXACT_INT) for name in (CPU, MEMORY)
    )
    return cpu, memory


def _total(reading: _Reading, spec: PodSpec, status: PodStatus | None, defaults: Amounts) -> Amounts:
    """Return the requests of a pod by resource, with defaults for containers without one."""
    by_name, infeasible = _of_status(status)
    running: Amounts = {}
    for index, count in _alike(spec.containers, by_name):
        requests = _requests(reading, spec.containers[index], f"spec.containers[{index}]", by_name, infeasible)
        requests = defaults | requests
        _add(running, requests if count == 1 else {name: count * amount for name, amount in requests.items()})
    if spec.init_containers:
        running = _with_init(reading, running, spec.init_containers, by_name, infeasible, defaults)
    if spec.resources is not None:
        level = {} if infeasible else reading.amounts(_requested(spec.resources), "spec.resources.requests")
        if status is not None:
            _raise_to(level, _held(reading, status.resources, status.allocated_resources, "status"))
        running.update(level or reading.amounts(_requested(spec.resources), "spec.resources.requests"))
    _add(running, reading.amounts(spec.overhead, "spec.overhead"))
    running.pop(PODS, None)
    return running


def resized(spec: PodSpec, status: PodStatus) -> bool:
    """Whether a kubelet has set or allocated other amounts than the spec requests."""
    if status.resources is not None or status.allocated_resources:
        asked = spec.resources.requests if spec.resources is not None else {}
        if _differs(asked, status.resources, status.allocated_resources):
            return True
    if not any(
        container_status.resources is not None or container_status.allocated_resources
        for container_status in _statuses(status)
    ):
        return False
    wanted = {container.name: container.resources.requests for container in (*spec.containers, *spec.init_containers)}
    return any(
        _differs(
            wanted.get(container_status.name, {}), container_status.resources, container_status.allocated_resources
        )
        for container_status in _statuses(status)
    )


def _differs(asked: Mapping[str, Quantity], set_: Resources | None, allocated: Mapping[str, Quantity]) -> bool:
    return (set_ is not None and set_.requests != asked) or (bool(allocated) and allocated != asked)


def _statuses(status: PodStatus) -> tuple[ContainerStatus, ...]:
    if not status.init_container_statuses:
        return status.container_statuses
    return (*status.container_statuses, *status.init_container_statuses)


def _of_status(status: PodStatus | None) -> tuple[dict[str, ContainerStatus], bool]:
    """Return the container statuses by name, and whether the kubelet found the resize infeasible."""
    if status is None:
        return {}, False
    pending = next(
        (
            condition
            for condition in status.conditions
            if condition.type == "PodResizePending" and condition.status == "True"
        ),
        None,
    )
    infeasible = status.resize == "Infeasible" or (pending is not None and pending.reason == "Infeasible")
    return {container_status.name: container_status for container_status in _statuses(status)}, infeasible


def _alike(containers: Sequence[Container], by_name: Mapping[str, ContainerStatus]) -> list[tuple[int, int]]:
    """Return the first container of each group with the same requests, and the size of the group.

    A pod of 1.5 MB may have 17,000 containers: equal requests are read once. A container with a kubelet's status is a
    group of its own.
    """
    if len(containers) == 1:
        return [(0, 1)]
    kinds: dict[object, list[int]] = {}
    for index, container in enumerate(containers):
        of = container.resources
        asks = (tuple(of.requests.items()), tuple(of.limits.items()) if of.limits else ())
        kind = kinds.setdefault(container.name if container.name in by_name else asks, [index, 0])
        kind[1] += 1
    return [(first, count) for first, count in kinds.values()]


def _with_init(
    reading: _Reading,
    running: Amounts,
    init_containers: Sequence[Container],
    by_name: Mapping[str, ContainerStatus],
    infeasible: bool,
    defaults: Amounts,
) -> Amounts:
    sidecars: Amounts = {}
    peak: Amounts = {}
    for index, container in enumerate(init_containers):
        requests = _requests(reading, container, f"spec.initContainers[{index}]", by_name, infeasible)
        requests = defaults | requests
        if container.restart_policy == "Always":
            _add(sidecars, requests)
            _raise_to(peak, sidecars)
        else:
            alone = dict(sidecars)
            _add(alone, requests)
            _raise_to(peak, alone)
    together = dict(running)
    _add(together, sidecars)
    _raise_to(together, peak)
    return together


def _requests(
    reading: _Reading, container: Container, path: str, by_name: Mapping[str, ContainerStatus], infeasible: bool
) -> Amounts:
    asked = reading.amounts(_requested(container.resources), f"{path}.resources.requests")
    status = by_name.get(container.name)
    if status is None or not (status.resources is not None or status.allocated_resources):
        return asked
    held = _held(reading, status.resources, status.allocated_resources, f"status of {container.name}")
    if infeasible:
        return held
    _raise_to(asked, held)
    return asked


def _held(reading: _Reading, set_: Resources | None, allocated: Mapping[str, Quantity], path: str) -> Amounts:
    held = reading.amounts(set_.requests, f"{path}.resources.requests") if set_ is not None else {}
    _raise_to(held, reading.amounts(allocated, f"{path}.allocatedResources"))
    return held


def _requested(resources: Resources) -> Mapping[str, Quantity]:
    # The API server copies a limit into a missing request; this covers servers that do not.
    return {**resources.limits, **resources.requests} if resources.limits else resources.requests


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, floor: Amounts) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)

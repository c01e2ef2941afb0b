"""What a pod asks of a node: the sum that kube-scheduler and the kubelet compute.

Called by `translation`. Invariant: never less than what the kubelet will count, or pods bound here would be
refused there (OutOfcpu).

Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotide_core.units import PODS, resource_amount
from cotide_kube.objects import Container, PodSpec, Quantity, Resources

Amounts = dict[str, int]


def effective_requests(spec: PodSpec) -> tuple[tuple[str, int], ...]:
    """Return (resource, amount) sorted by name; amounts of zero are left out.

    Per resource: the larger of (all containers + all sidecars) and, for each ordinary init container, that one
    plus the sidecars declared before it; pod-level requests replace that sum where they are given; overhead is
    added at the end.

    Raises
    ------
    InputError
        When a quantity can't be read (an API server never lets one through).
    """
    running: Amounts = {}
    for container in spec.containers:
        _add(running, _requests(container))
    if spec.init_containers:
        running = _with_init(running, spec.init_containers)
    if spec.resources is not None:
        running.update(_requested(spec.resources))
    _add(running, _amounts(spec.overhead))
    running.pop(PODS, None)
    return tuple(sorted((name, amount) for name, amount in running.items() if amount))


def _with_init(running: Amounts, init_containers: Sequence[Container]) -> Amounts:
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in init_containers:
        requests = _requests(container)
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


def _requests(container: Container) -> Amounts:
    return _requested(container.resources)


def _requested(resources: Resources) -> Amounts:
    # The API server copies a limit into a missing request; a server that does not must not make us blind to it.
    if not resources.limits:
        return _amounts(resources.requests)
    return _amounts({**resources.limits, **resources.requests})


def _amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    return {name: resource_amount(name, quantity) for name, quantity in quantities.items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, floor: Amounts) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)

"""The progress of a pod that an earlier process of the fake nodes left running.

Called by `residents` when a pod is first seen. The API's times are cut to seconds, which simulated time stretches into
many. The exact start of a container is therefore part of its id (see `statuses`).
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from cotide_kube.objects import ContainerStatus, PodObject, PodSpec
from cotide_kube.timestamps import parse_timestamp
from cotide_sim.kubelets.statuses import CONTAINER_ID


@dataclass(frozen=True, slots=True)
class Adopted:
    """The API's data on a pod that an earlier process of the fake nodes left running; wall seconds."""

    started_seconds: float
    since_seconds: float
    restarts: int


def adopted(pod: PodObject) -> Adopted | None:
    """Return the progress of a pod, or None when it does not run yet.

    Raises
    ------
    InputError
        When its start time is not a time.
    """
    if pod.status.phase != "Running" or pod.status.start_time is None:
        return None
    started = parse_timestamp(pod.status.start_time)
    container = next(iter(pod.status.container_statuses), ContainerStatus())
    exact = container.container_id.removeprefix(CONTAINER_ID)
    ours = exact != container.container_id and exact.replace(".", "", 1).isdecimal()
    return Adopted(started, float(exact) if ours else started, container.restart_count)


def as_set(pod: PodObject) -> PodSpec:
    """Return a pod's spec with the resources that its containers hold, in the place of their requests, where their
    status has them.
    """
    held = {status.name: status.resources for status in pod.status.container_statuses if status.resources is not None}
    containers = tuple(
        replace(container, resources=held.get(container.name, container.resources)) for container in pod.spec.containers
    )
    return replace(pod.spec, containers=containers)

"""Pod statuses as a kubelet writes them, for each state of a pod's life.

Called by `residents`. Each function returns the whole status that a kubelet owns, so that a later one may replace an
earlier unsent one. Between Pending and Succeeded one write is enough when a pod is that short. Pure; times are wall
seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotide_kube.timestamps import format_timestamp
from cotide_sim.kubelets.admission import Refusal

Status = dict[str, Any]
CONTAINER_ID: Final = "cotide-fake://"
"""Scheme of the fake nodes' container ids; the rest is the exact wall time of the start, which API times cut to
seconds.
"""
KILLED_EXIT_CODE: Final = 137
"""128 + SIGKILL, as container runtimes report it."""


@dataclass(frozen=True, slots=True)
class PodSite:
    """The node of a pod and its containers: the constant part of its status."""

    host_ip: str
    pod_ip: str
    containers: tuple[tuple[str, str, Status], ...]
    """(name, image, the set resources). A server takes resizes of a running container only if it has them."""


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """One completed run of a pod's containers; wall seconds."""

    since_seconds: float
    ended_seconds: float
    exit_code: int


def running(
    site: PodSite,
    started_seconds: float,
    since_seconds: float,
    restarts: int = 0,
    last: ContainerRun | None = None,
    *,
    ready: float | None = None,
) -> Status:
    """Return the status of a running pod; after restarts it includes how the container ended before.

    Parameters
    ----------
    ready : since when it is ready, where this is later than the start of its container.
    """
    state = {"running": {"startedAt": format_timestamp(since_seconds)}}
    return {
        "phase": "Running",
        "startTime": format_timestamp(started_seconds),
        **_addresses(site),
        "conditions": _conditions(since_seconds, ready=True, ready_seconds=ready),
        "containerStatuses": _containers(
            site, state, ready=True, restarts=restarts, last=last, since_seconds=since_seconds
        ),
    }


def waiting_to_restart(
    site: PodSite, started_seconds: float, last: ContainerRun, restarts: int, back_off_seconds: float
) -> Status:
    """Return the status of a pod with an ended container that starts again after a back-off."""
    name = site.containers[0][0] if site.containers else "container"
    state = {
        "waiting": {
            "reason": "CrashLoopBackOff",
            "message": f"back-off {back_off_seconds:g}s restarting failed container={name}",
        }
    }
    return {
        "phase": "Running",
        "startTime": format_timestamp(started_seconds),
        **_addresses(site),
        "conditions": _conditions(last.ended_seconds, ready=False, reason="ContainersNotReady"),
        "containerStatuses": _containers(
            site, state, ready=False, restarts=restarts, last=last, since_seconds=last.since_seconds
        ),
    }


def finished(
    site: PodSite,
    started_seconds: float,
    last: ContainerRun,
    restarts: int = 0,
    *,
    reason: str = "",
    message: str = "",
) -> Status:
    """Return the status of a pod that ended permanently; ``reason`` and ``message`` for an end that was imposed."""
    succeeded = last.exit_code == 0
    status: Status = {
        "phase": "Succeeded" if succeeded else "Failed",
        "startTime": format_timestamp(started_seconds),
        **_addresses(site),
        "conditions": _conditions(last.ended_seconds, ready=False, reason="PodCompleted" if succeeded else "PodFailed"),
        "containerStatuses": _containers(
            site,
            {"terminated": _ended(last)},
            ready=False,
            restarts=restarts,
            last=None,
            since_seconds=last.since_seconds,
        ),
    }
    if reason:
        status |= {"reason": reason, "message": message}
    return status


def refused(refusal: Refusal, seconds: float) -> Status:
    """Return the status of a pod that its kubelet refused."""
    return {
        "phase": "Failed",
        "reason": refusal.reason,
        "message": refusal.message,
        "startTime": format_timestamp(seconds),
    }


def _addresses(site: PodSite) -> Status:
    return {
        "hostIP": site.host_ip,
        "hostIPs": [{"ip": site.host_ip}],
        "podIP": site.pod_ip,
        "podIPs": [{"ip": site.pod_ip}],
    }


def _ended(run: ContainerRun) -> Status:
    return {
        "exitCode": run.exit_code,
        "reason": "Completed" if run.exit_code == 0 else "Error",
        "startedAt": format_timestamp(run.since_seconds),
        "finishedAt": format_timestamp(run.ended_seconds),
    }


def _conditions(seconds: float, *, ready: bool, reason: str = "", ready_seconds: float | None = None) -> list[Status]:
    turned = format_timestamp(seconds if ready_seconds is None else ready_seconds)
    at, word = format_timestamp(seconds), "True" if ready else "False"
    why = {"reason": reason} if reason else {}
    return [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at},
        {"type": "Initialized", "status": "True", "lastTransitionTime": at},
        {"type": "ContainersReady", "status": word, "lastTransitionTime": at, **why},
        {"type": "Ready", "status": word, "lastTransitionTime": turned, **why},
    ]


def _containers(
    site: PodSite, state: Status, *, ready: bool, restarts: int, last: ContainerRun | None, since_seconds: float
) -> Sequence[Status]:
    return [
        {
            "name": name,
            "image": image,
            "imageID": "",
            "containerID": f"{CONTAINER_ID}{since_seconds:.6f}",
            "ready": ready,
            "started": ready,
            "restartCount": restarts,
            "state": state,
            **({"lastState": {"terminated": _ended(last)}} if last else {}),
            "resources": resources,
        }
        for name, image, resources in site.containers
    ]

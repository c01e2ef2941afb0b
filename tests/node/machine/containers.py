"""Pods and Jobs of real containers, for the tests on real nodes."""

from __future__ import annotations

from typing import Any, Final

from manifests import job_manifest
from real_nodes import SHELL

SMALL: Final = {"cpu": "50m", "memory": "16Mi"}
"""Requests of most containers here; chosen, so that tens fit on two nodes."""


def shell(script: str, *, name: str = "c", requests: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Return a container that runs a shell script."""
    return {
        "name": name,
        "image": SHELL,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": SMALL if requests is None else requests},
        **more,
    }


def batch_pod(name: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a pod that Cotide schedules."""
    return {
        "metadata": {"name": name, "labels": {"cotide.dev/class": "batch"}},
        "spec": {
            "schedulerName": "cotide",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }


def job(
    name: str, container: dict[str, Any], *, completions: int = 1, parallelism: int = 1, **spec: Any
) -> dict[str, Any]:
    """Return a Job of ours whose container goes at once when it is asked to."""
    body = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    return job_manifest(name, **{"completions": completions, "parallelism": parallelism, "template": body, **spec})

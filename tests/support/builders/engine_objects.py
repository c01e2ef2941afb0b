"""Builders of what the engine is told of: pods and nodes, and the events that bring them.

A test names what it is about; all else is as here: pods of namespace ``d`` that ask for one cpu, nodes that hold one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cotide_core.classes import WorkloadClass
from cotide_core.events import Node, NodeUpserted, Pod, PodPhase, PodUpserted

GIB = 1 << 30


def pod(
    name: str = "p", cpu: int = 1000, cls: WorkloadClass = WorkloadClass.BATCH, *, memory: int = 0, **fields: Any
) -> Pod:
    """A pod of ours that waits: ``d/NAME`` (or the key, if that is given) of uid ``u-NAME``; any field may differ."""
    key = name if "/" in name else f"d/{name}"
    requests = (("cpu", cpu), ("memory", memory)) if memory else (("cpu", cpu),)
    return Pod(key, f"u-{name}", cls, requests, 0.0, ours=True)._replace(**fields)


def pod_upserted(
    name: str = "p", cpu: int = 1000, cls: WorkloadClass = WorkloadClass.BATCH, *, memory: int = 0, **fields: Any
) -> PodUpserted:
    """The event of such a pod."""
    return PodUpserted(pod(name, cpu, cls, memory=memory, **fields))


def running_pod(
    name: str, on: str, cpu: int = 1000, cls: WorkloadClass = WorkloadClass.BATCH, *, memory: int = 0, **fields: Any
) -> Pod:
    """Such a pod that runs on a node."""
    return pod(name, cpu, cls, memory=memory, **{"node": on, "phase": PodPhase.RUNNING, **fields})


def node(name: str = "a", cpu: int = 1000, *, memory: int = 16 * GIB, pods: int = 110, **fields: Any) -> Node:
    """A node that is ready; ``offers`` are resources beside cpu, memory and pods; any field may differ."""
    offered = {"cpu": cpu, "pods": pods, **({"memory": memory} if memory else {}), **fields.pop("offers", {})}
    return replace(Node(name, tuple(sorted(offered.items()))), **fields)


def node_upserted(
    name: str = "a", cpu: int = 1000, *, memory: int = 16 * GIB, pods: int = 110, **fields: Any
) -> NodeUpserted:
    """The event of such a node."""
    return NodeUpserted(node(name, cpu, memory=memory, pods=pods, **fields))

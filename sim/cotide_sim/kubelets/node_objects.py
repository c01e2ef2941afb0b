"""The API objects of a fake node: Node and Lease, as a kubelet registers them.

Called by `registration` and `fleet`. Pure. The label and annotation ``cotide.dev/fake-node`` distinguish a fake node
from a real one. There is no other difference, so that what works here works on real nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any, Final

from cotide_core.units import CPU, MEMORY, format_amount
from cotide_kube.objects import TaintObject
from cotide_kube.timestamps import format_micro_timestamp, format_timestamp

FAKE_LABEL: Final = "cotide.dev/fake-node"
LEASE_SECONDS: Final = 40
"""A kubelet's lease duration."""
_FIRST_ADDRESS: Final = IPv4Address("198.18.0.1")
"""RFC 2544 reserves 198.18.0.0/15 for device tests: no real host answers there."""
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True)
class NodeShape:
    """The properties of every node of a fleet."""

    millicores: int = 8000
    memory_bytes: int = 32 * 2**30
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[TaintObject, ...] = ()


def host_address(number: int) -> str:
    """Return the address of the node with this number, from 0."""
    return str(_FIRST_ADDRESS + number)


def node_object(name: str, number: int, shape: NodeShape, wall_seconds: float) -> dict[str, Any]:
    """Return the Node to create."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "fake",
        FAKE_LABEL: "true",
        **shape.labels,
    }
    spec: dict[str, Any] = {"providerID": f"cotide-fake://{name}"}
    if shape.taints:
        spec["taints"] = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in shape.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {FAKE_LABEL: "true"}},
        "spec": spec,
        "status": node_status(name, number, shape, wall_seconds),
    }


def node_status(name: str, number: int, shape: NodeShape, wall_seconds: float) -> dict[str, Any]:
    """Return the status of a healthy node."""
    amounts = {
        CPU: format_amount(CPU, shape.millicores),
        MEMORY: format_amount(MEMORY, shape.memory_bytes),
        "pods": str(shape.pods),
    }
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": heartbeat_conditions(wall_seconds, first=True),
        "addresses": [
            {"type": "InternalIP", "address": host_address(number)},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "",
            "containerRuntimeVersion": "fake://1",
            "kernelVersion": "fake",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.29.0-cotide-fake",
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "Cotide fake node",
            "systemUUID": "",
        },
    }


def heartbeat_conditions(wall_seconds: float, *, first: bool = False) -> list[dict[str, str]]:
    """Return the node conditions with a new heartbeat time."""
    at = format_timestamp(wall_seconds)
    transition = {"lastTransitionTime": at} if first else {}
    return [
        {"type": kind, "status": status, "reason": reason, "message": text, "lastHeartbeatTime": at, **transition}
        for kind, status, reason, text in _CONDITIONS
    ]


def lease_object(name: str, node_uid: str, wall_seconds: float) -> dict[str, Any]:
    """Return a node's Lease; it is deleted with the node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format_micro_timestamp(wall_seconds),
        },
    }

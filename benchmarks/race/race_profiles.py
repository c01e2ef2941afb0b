"""kube-scheduler's profiles for the race: as it comes, reduced to what Cotide does too, and the least that binds.

Names and weights of plugins are those of kube-scheduler's default profile (Kubernetes 1.35,
``pkg/scheduler/apis/config/v1/default_plugins.go``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

LEAST: Final = {
    "SchedulingGates": 1,
    "PrioritySort": 1,
    "NodeUnschedulable": 1,
    "NodeName": 1,
    "TaintToleration": 3,
    "NodeResourcesFit": 1,
    "DefaultBinder": 1,
}
"""What can refuse a pod of the race: room, taints, cordons."""
REDUCED: Final = LEAST | {
    "NodeAffinity": 2,
    "NodePorts": 1,
    "VolumeRestrictions": 1,
    "NodeVolumeLimits": 1,
    "VolumeBinding": 1,
    "VolumeZone": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "ImageLocality": 1,
    "DefaultPreemption": 1,
}
"""All that Cotide has a rule of its own for; left out are DynamicResources and NodeResourcesBalancedAllocation."""
PROFILES: Final = {"kube-scheduler": None, "kube-scheduler-reduced": REDUCED, "kube-scheduler-least": LEAST}
"""Plugins with their weights by racer; None: as it comes."""
QPS: Final = 5000
"""Requests a second that kube-scheduler may send, bursts of twice as many: no limit that would matter."""


def configuration(racer: str, kubeconfig: Path) -> str:
    """Return a KubeSchedulerConfiguration for one of `PROFILES`, without leader election."""
    plugins = PROFILES[racer]
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"clientConnection: {{kubeconfig: {kubeconfig}, qps: {QPS}, burst: {2 * QPS}}}\n"
        "leaderElection: {leaderElect: false}\n"
    )
    if plugins is None:
        return text
    enabled = "".join(f"      - {{name: {name}, weight: {weight}}}\n" for name, weight in plugins.items())
    return (
        f"{text}profiles:\n- schedulerName: default-scheduler\n  plugins:\n    multiPoint:\n"
        f"      disabled: [{{name: '*'}}]\n      enabled:\n{enabled}"
    )

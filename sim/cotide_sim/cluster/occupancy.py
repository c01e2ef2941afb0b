"""What running pods hold on each node of a simulated cluster, kept up with starts and ends.

Called by `world`, which checks with it what a kubelet would check, and measures nodes by it. Invariant: the sums are
those over the pods that run (whole numbers throughout, so the order of starts and ends leaves no trace).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod
from cotide_core.kernels.array_types import Floats
from cotide_sim.cluster.pod_load import PodLoad


class Occupancy:
    """Sums over the running pods of each of the named nodes.

    Attributes
    ----------
    asked, held : (2, N) millicores and bytes that online pods, and batch and gratis pods, ask for; read only.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self._row = {name: row for row, name in enumerate(nodes)}
        self._requested: dict[str, dict[str, int]] = {name: {} for name in nodes}
        self.asked: Floats = np.zeros((2, len(nodes)))
        self.held: Floats = np.zeros((2, len(nodes)))

    def start(self, node: str, pod: Pod, load: PodLoad) -> None:
        """Count a pod that starts to run."""
        self._count(node, pod, load, 1)

    def end(self, node: str, pod: Pod, load: PodLoad) -> None:
        """Count a pod no more."""
        self._count(node, pod, load, -1)

    def excess(self, node: str, arriving: Pod, there: Mapping[str, int]) -> tuple[str, int] | None:
        """Return the first resource that a node would hold too much of with a further pod, and how much; else None."""
        requested = self._requested[node]
        for resource, amount in arriving.requests:
            used = amount + requested.get(resource, 0)
            if used > there.get(resource, 0):
                return resource, used
        return None

    def _count(self, node: str, pod: Pod, load: PodLoad, sign: int) -> None:
        requested = self._requested[node]
        for resource, amount in pod.requests:
            requested[resource] = requested.get(resource, 0) + sign * amount
        part = self.asked if pod.workload_class is WorkloadClass.ONLINE else self.held
        row = self._row[node]
        part[0, row] += sign * load.millicores
        part[1, row] += sign * load.memory_bytes

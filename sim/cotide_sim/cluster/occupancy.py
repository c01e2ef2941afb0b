"""Resources that running pods hold on each node of a simulated cluster, updated with starts and ends.

Called by `world`, for the checks of a kubelet and for measurements of nodes. Invariant: the sums are those over the
running pods (whole numbers throughout, so the order of starts and ends leaves no trace).
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
    asked, held : (2, N) millicores and bytes requested by online pods, and by batch and gratis pods; read only.
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
        """Remove a pod from the sums."""
        self._count(node, pod, load, -1)

    def excess(self, node: str, arriving: Pod, capacity: Mapping[str, int]) -> tuple[str, int] | None:
        """Return the first resource that a further pod would overcommit on a node, and the amount; else None."""
        requested = self._requested[node]
        for resource, amount in arriving.requests:
            used = amount + requested.get(resource, 0)
            if used > capacity.get(resource, 0):
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

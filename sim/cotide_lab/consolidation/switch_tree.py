"""`SwitchTree`: the switches over the nodes, and how far apart two nodes are.

Built by the experiments from a number of ports or from labels; read by `hsa`, `metrics` and
`energy`. Level 1 are the switches that nodes hang on, each level above joins those below, one root is over all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers


@dataclass(frozen=True)
class SwitchTree:
    """A tree of any arity, which may differ from switch to switch.

    Parameters
    ----------
    switches : (L, N) number of the switch over each node, level by level upwards; the last level has one switch.

    Raises
    ------
    InputError
        When a switch's nodes are under two switches of the level above, or the last level has more than one.
    """

    switches: Integers

    def __post_init__(self) -> None:
        if self.switches.ndim != 2 or not self.switches.size:
            raise InputError("wants (L, N) numbers of switches with L and N at least 1", field="switches")
        for lower, upper in zip(self.switches, self.switches[1:], strict=False):
            _, first, inverse = np.unique(lower, return_index=True, return_inverse=True)
            if (upper[first][inverse] != upper).any():
                raise InputError("has a switch that hangs on two switches", field="switches")
        if (self.switches[-1] != self.switches[-1, 0]).any():
            raise InputError("has no single root", field="switches")

    @classmethod
    def of_ports(cls, nodes: int, *ports: int) -> SwitchTree:
        """Join neighbours: `ports` nodes or switches under one switch, level by level; the last number repeats."""
        if nodes < 1 or not ports or min(ports) < 2:
            raise InputError("wants a node or more, and switches of two ports or more", field="ports")
        levels: list[Integers] = []
        at = np.arange(nodes)
        while not levels or at.max() > 0:
            at = at // ports[min(len(levels), len(ports) - 1)]
            levels.append(at)
        return cls(np.array(levels, np.int64))

    @property
    def levels(self) -> int:
        """L."""
        return len(self.switches)

    def distance(self, left: Integers, right: Integers) -> Integers:
        """Return the level of the lowest switch over both nodes of each pair; 0 for the same node."""
        found = np.zeros(np.shape(left), np.int64)
        for level in range(self.levels, 0, -1):
            same = self.switches[level - 1, left] == self.switches[level - 1, right]
            found[same] = level
        found[np.equal(left, right)] = 0
        return found

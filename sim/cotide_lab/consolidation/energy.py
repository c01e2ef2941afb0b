"""`energy`: watts of servers and of switches under a placement.

Called by the experiments. Wen et al. name both as the goal and give neither a model nor a
figure. A used server draws idle power, and the rest in proportion to its load (the linear model of Fan et al. 2007). A
server without applications is off. A switch is on while a node below it is, and draws more for each live port.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.switch_tree import SwitchTree


@dataclass(frozen=True)
class PowerModel:
    """Watts.

    Attributes
    ----------
    server_idle, server_peak : of a used server at no and at full load. Defaults: HP ProLiant ML110 G5 as Beloglazov and
        Buyya 2012 give it from SPECpower.
    switch_base, switch_port : of a switch that is on, and for each live port of it (chosen: an edge switch of 48 ports
        then draws 150 to 186 W).
    """

    server_idle: float = 93.7
    server_peak: float = 135.0
    switch_base: float = 150.0
    switch_port: float = 0.75


@dataclass(frozen=True)
class Energy:
    """Watts of the servers and of the switches, and how many switches are on."""

    servers: float
    switches: float
    switches_on: int

    @property
    def total(self) -> float:
        """Watts of both."""
        return self.servers + self.switches


def energy(instance: Instance, outcome: Outcome, tree: SwitchTree, power: PowerModel | None = None) -> Energy:
    """Return what a placement draws."""
    power = power or PowerModel()
    after = instance.moved_to(outcome.targets)
    used = np.bincount(outcome.targets, minlength=instance.nodes) > 0
    shares = np.minimum(after.loads[used, 0] / after.capacities[used, 0], 1.0)
    servers = power.server_idle * len(shares) + (power.server_peak - power.server_idle) * float(shares.sum())
    switches_on = ports = 0
    below = np.flatnonzero(used)
    for level in tree.switches:
        live, first = np.unique(level[below], return_index=True)
        ports += len(below)
        switches_on += len(live)
        below = below[first]  # one node represents each live switch, as a port of the level above
    return Energy(servers, power.switch_base * switches_on + power.switch_port * ports, switches_on)

"""`JointPeaks`, our rule over time: hosts are packed so that the loads of the last hours would have fitted.

Played by `traces`. A machine is a vector of its peaks in each of the last eight half hours, and a packing must hold in
every half hour. Machines with peaks at different times share a host, and those that rise together do not. Rules with
one number a machine pack by sums of peaks over time and know neither. All sizes are multiplied by a factor that follows
the overloads so far, within narrow limits. At every slot hosts that are nearly full are eased.

A plan is carried out only if it frees a host and moves at most `budget` machines for each freed host. Consolidation
packs to `reserve` above the factor, so that a plan is not undone soon after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_lab.consolidation.dmns import dmns
from cotide_lab.consolidation.instance import Instance
from cotide_lab.experiments.consolidation.rules import (
    BUDGET,
    HOT,
    HOUR,
    QUARTER,
    Cluster,
    Still,
    eased,
    if_it_pays,
)

PARTS: Final = 8
"""Number of past half hours in use (chosen among 1 to 4 hours in parts of 5 to 30 minutes, on two weeks of Azure)."""
PART: Final = 6
"""Slots of a half hour."""


@dataclass
class JointPeaks(Still):
    """See the module.

    Attributes
    ----------
    allowed : share of hosts that may be overloaded; the factor follows it. every : slots between consolidations.
    hot : share of its cpu above which a host is eased.
    """

    allowed: float = 0.002
    reserve: float = 0.15
    budget: int = BUDGET
    every: int = QUARTER
    hot: float = HOT
    factor: float = 1.6
    seen: float = 0.0
    slots: int = 0
    name: str = "ours"

    def learn(self, overloaded: float) -> None:
        """Move the factor by the distance of the overloads of the last eight hours from the allowed share."""
        self.slots += 1
        self.seen += (overloaded - self.seen) / min(self.slots, 8 * HOUR)
        self.factor *= float(np.exp(0.002 * np.clip(self.seen / self.allowed - 1, -1, 8)))
        self.factor = float(np.clip(self.factor, 0.9, 2.0))

    def sizes(self, cluster: Cluster) -> Integers:
        """Return the largest peak of each machine, times the factor, for placing one at a time."""
        return np.asarray(self._peaks(cluster, self.factor).max(axis=1))

    def moves(self, cluster: Cluster) -> Integers:
        """Ease at every slot, consolidate when it pays."""
        before = cluster.on
        cluster.on = eased(cluster, self.sizes(cluster), self.hot)
        if cluster.slot % self.every == 0 and cluster.slot:
            cluster.on = self._consolidated(cluster)
        found, cluster.on = cluster.on, before
        return found

    def _peaks(self, cluster: Cluster, factor: float) -> Integers:
        """Return (M, PARTS) peaks, not above the request; a part without a record counts as the largest known one."""
        past = cluster.past(PARTS * PART)
        slots = past.shape[1]
        parts = [past[:, max(0, slots - (at + 1) * PART) : max(0, slots - at * PART)] for at in range(PARTS)]
        peaks = np.stack([np.max(np.nan_to_num(part, nan=-1.0), axis=1, initial=-1.0) for part in parts], axis=1)
        largest = peaks.max(axis=1, keepdims=True)
        peaks = np.where(peaks < 0, largest, peaks) * factor
        asked = cluster.asked[:, :1]
        return np.clip(np.where(peaks < 0, asked, np.ceil(peaks)), 1, asked).astype(np.int64)

    def _consolidated(self, cluster: Cluster) -> Integers:
        running = cluster.running
        if not len(running):
            return cluster.on
        peaks = self._peaks(cluster, self.factor * (1 + self.reserve))[running]
        used, homes = np.unique(cluster.on[running], return_inverse=True)
        hosts = cluster.hosts[used]
        capacities = np.concatenate([np.repeat(hosts[:, :1], PARTS, axis=1), hosts[:, 1:]], axis=1)
        # A machine counts with no more than its own host holds.
        sizes = np.minimum(np.concatenate([peaks, cluster.asked[running, 1:]], axis=1), capacities[homes])
        found = dmns(Instance(sizes, homes.astype(np.int64), capacities, np.ones(len(running), np.int64)))
        planned = cluster.on.copy()
        planned[running] = used[found.targets]
        return if_it_pays(cluster.on, planned, self.budget)

"""What Wen et al. measure: RoNU, RoDT, RoDTE and RoLDT, and transfer weighted by the tree.

Called by the experiments. All are shares; `total` is the summed size of all applications (the paper's T).
"""

from __future__ import annotations

import numpy as np

from cotide_lab.consolidation.hsa import HierarchicalOutcome
from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.switch_tree import SwitchTree


def total(instance: Instance) -> int:
    """T: summed weight of all applications."""
    return int(instance.moving.sum())


def nodes_used_ratio(instance: Instance, outcome: Outcome) -> float:
    """RoNU = nodes used / N (V-B.1)."""
    return outcome.nodes_used / instance.nodes


def transfer_ratio(instance: Instance, outcome: Outcome) -> float:
    """RoDT = transfer / T (V-B.2); 0 if T is 0."""
    return outcome.transfer / total(instance) if total(instance) else 0.0


def transfer_estimate_ratio(instance: Instance, outcome: Outcome) -> float:
    """RoDTE = 1 - RoNU, an upper bound of RoDT when K <= N - nodes used (V-B.3, Lemma 1)."""
    return 1.0 - nodes_used_ratio(instance, outcome)


def local_transfer_ratio(instance: Instance, found: HierarchicalOutcome, switch_nodes: int) -> float:
    """RoLDT = Ns L / T + (transfer of level 2 and above) / T (VI-B): less is more stable.

    Parameters
    ----------
    switch_nodes : Ns, nodes under a first-level switch.
    """
    largest = int(instance.capacities[:, 0].max())
    return (switch_nodes * largest + sum(found.level_transfers[1:])) / total(instance)


def weighted_transfer(instance: Instance, outcome: Outcome, tree: SwitchTree) -> int:
    """DT_cost with c = the level of the lowest common switch (chosen: Fig. 6 shows no numbers)."""
    levels = tree.distance(instance.homes, outcome.targets)
    return int(np.sum(instance.moving * levels))

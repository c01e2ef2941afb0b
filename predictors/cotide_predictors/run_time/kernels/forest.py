"""Boosted trees as flat arrays, evaluated one row at a time.

Called by `tree_forecasts` at each submission of a replay; the laboratory's `boosted` fills the arrays from a
library's trees. Invariant: a row goes down the trees just as in the library: numbers and thresholds are float32, and a
missing value has a branch of its own. Leaves are added in the order of the trees, so that compiled code and plain
Python give the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.array_types import Narrow, Nodes
from cotide_core.kernels.compiled import compiled


class Forest(NamedTuple):
    """Trees end to end in flat arrays of m nodes; no tree at all before the first fit.

    Attributes
    ----------
    roots : (trees,) index of each tree's root.
    feature : (m,) column that a node compares; -1 for a leaf.
    threshold : (m,) a row goes left where its value is below; of a leaf: its addend.
    left, right, missing : (m,) indices of the next node, the last for a value that is nan.
    base : (1,) added to the leaves of all trees.
    """

    roots: Nodes
    feature: Nodes
    threshold: Narrow
    left: Nodes
    right: Nodes
    missing: Nodes
    base: npt.NDArray[np.float64]


def no_forest() -> Forest:
    """Return a forest without trees."""
    none = np.zeros(0, np.int32)
    return Forest(none, none, np.zeros(0, np.float32), none, none, none, np.zeros(1))


@compiled
def forest_sum(forest: Forest, row: Narrow) -> float:
    """Return the sum over all trees for one row, and the base."""
    total: float = forest.base[0]
    for at in forest.roots:
        node = at
        while forest.feature[node] >= 0:
            value = row[forest.feature[node]]
            if np.isnan(value):
                node = forest.missing[node]
            elif value < forest.threshold[node]:
                node = forest.left[node]
            else:
                node = forest.right[node]
        total += float(forest.threshold[node])
    return total

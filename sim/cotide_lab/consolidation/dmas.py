"""DMAS: as DMNS, with nodes sorted by their largest application instead of their load (Wen et al., VII-B).

Called by `hsa` and the experiments. Table II calls it DMPS.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_lab.consolidation.dmns import search
from cotide_lab.consolidation.instance import Instance, Outcome


def by_largest_application(instance: Instance) -> Integers:
    """Return the nodes in order of their largest application, least first; empty nodes come first."""
    largest = np.zeros(instance.nodes)
    np.maximum.at(largest, instance.homes, instance.size_shares)
    return np.asarray(np.lexsort((np.arange(instance.nodes), largest)), np.int64)


def dmas(instance: Instance) -> Outcome:
    """Return the best of emptying the first 0 to N nodes in that order."""
    return search(instance, by_largest_application(instance)).outcome

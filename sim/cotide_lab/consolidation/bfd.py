"""BFD: packs every application again by best fit, largest first (Wen et al., Property 1: KMNS with K = N).

Called by the experiments, as the baseline that forgets where everything is.
"""

from __future__ import annotations

from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.kmns import kmns


def bfd(instance: Instance) -> Outcome:
    """Return the packing; new nodes are matched to old ones as in KMNS, so that little moves."""
    return kmns(instance, instance.nodes)

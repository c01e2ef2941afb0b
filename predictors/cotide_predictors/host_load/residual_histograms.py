"""Decaying histograms of scaled residuals, and quantiles read from them: the conformal core of host-load forecasts.

Called by `mixture`, once a slot for all hosts. A residual is the outcome minus an expert's expectation, in units of
that expert's scale. Its past distribution, with the newest heaviest, gives the height of a quantile above the
expectation. A prior, spread like the pool of all hosts, is added to a host's own counts. A host without history is
answered from the pool, and a host with a day of it nearly from its own counts alone.

A bin is an equal step of a transformed residual. The transform is asinh (fine around zero, wide in the tails); the
experts from column ``linear`` on have bounded residuals and no transform. Invariant: one slot's weight grows by 1 /
decay instead of shrinking every older count; the caller divides all before that overflows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled

Counts = NDArray[np.float32]
Flags = NDArray[np.bool_]
Bins = NDArray[np.uint8]

BINS: Final = 96
"""Steps of the transformed residual from -REACH to REACH: 0.1 scales wide at the centre (chosen)."""
BLOCK: Final = 8
"""Bins of a block; block sums find a quantile without reading every bin (chosen)."""
BLOCKS: Final = BINS // BLOCK
REACH: Final = 4.8
"""asinh of the largest resolved residual, 60 scales; larger ones count in the last bin (chosen)."""
_STEP: Final = 2 * REACH / BINS


def bin_edges(experts: int, linear: int) -> Floats:
    """Return (K, BINS + 1) the residuals between bins."""
    steps = np.linspace(-REACH, REACH, BINS + 1)
    return np.where(np.arange(experts)[:, None] >= linear, steps[None, :], np.sinh(steps)[None, :])


def standard_shares() -> Floats:
    """Return (BINS,) shares of the bins before any host was seen: Laplace of scale 1 in asinh bins (chosen); sum 1."""
    edges = np.sinh(np.linspace(-REACH, REACH, BINS + 1))
    below = np.where(edges < 0, 0.5 * np.exp(np.minimum(edges, 0)), 1 - 0.5 * np.exp(-np.maximum(edges, 0)))
    shares: Floats = np.diff(below) / (below[-1] - below[0])
    return shares


def bins_of(values: Floats, locations: Floats, scales: Floats, linear: int) -> Bins:
    """Return (n, K) the bin of each residual; anything where a value (n,) is nan."""
    residuals = values[:, None] - locations
    residuals /= scales
    curved = residuals[:, :linear]
    # asinh, written out over the array: several times as fast as the library's, and as a compiled loop's logarithm.
    size = np.abs(curved)
    root = np.sqrt(size * size + 1.0)
    root += size
    np.copysign(np.log(root, out=root), curved, out=curved)
    residuals += REACH
    residuals /= _STEP
    np.clip(residuals, 0.0, BINS - 1.0, out=residuals)
    np.copyto(residuals, 0.0, where=np.isnan(values)[:, None])
    return residuals.astype(np.uint8)


@compiled
def add_residuals(counts: Counts, blocks: Counts, pool: Floats, present: Flags, indices: Bins, weight: float) -> None:
    """Count each present host's residuals, in its own histograms and in the pool's; in place.

    Parameters
    ----------
    counts : (n, K, BINS). blocks : (n, K, BLOCKS) the sums of each `BLOCK` bins. pool : (K, BINS).
    present : (n,). indices : (n, K) bins, see `bins_of`. weight : of this slot.
    """
    hosts, experts = indices.shape
    for host in range(hosts):
        if not present[host]:
            continue
        for expert in range(experts):
            index = indices[host, expert]
            counts[host, expert, index] += weight
            blocks[host, expert, index // BLOCK] += weight
            pool[expert, index] += weight


@compiled
def residual_quantiles(
    counts: Counts, blocks: Counts, masses: Floats, prior: Floats, levels: Floats, edges: Floats, found: Floats
) -> None:
    """Write into ``found`` (n, Q, K) the residuals that bound each level's share of counts and prior.

    Parameters
    ----------
    counts, blocks : see `add_residuals`. masses : (n,) sum of one expert's counts of a host.
    prior : (K, BINS) in the same unit as the counts. levels : (n, Q), rising along the second axis.
    edges : see `bin_edges`.
    """
    hosts, experts, bins = counts.shape
    asked = levels.shape[1]
    prior_blocks = np.zeros((experts, bins // BLOCK))
    for expert in range(experts):
        for index in range(bins):
            prior_blocks[expert, index // BLOCK] += prior[expert, index]
    prior_masses = prior_blocks.sum(axis=1)
    for host in range(hosts):
        for expert in range(experts):
            own, own_blocks = counts[host, expert], blocks[host, expert]
            pooled, pooled_blocks, edge = prior[expert], prior_blocks[expert], edges[expert]
            total = masses[host] + prior_masses[expert]
            # From the top, block by block: high levels are reached soon, and most bins stay unread.
            above, block = 0.0, bins // BLOCK - 1
            mass = own_blocks[block] + pooled_blocks[block]
            for level in range(asked - 1, -1, -1):
                target = (1.0 - levels[host, level]) * total
                while block > 0 and above + mass < target:
                    above += mass
                    block -= 1
                    mass = own_blocks[block] + pooled_blocks[block]
                index = (block + 1) * BLOCK - 1
                within = above
                part = own[index] + pooled[index]
                while index > block * BLOCK and within + part < target:
                    within += part
                    index -= 1
                    part = own[index] + pooled[index]
                share = min(max((target - within) / part, 0.0), 1.0) if part > 0.0 else 0.0
                found[host, level, expert] = edge[index + 1] - share * (edge[index + 1] - edge[index])

"""Quantiles of a host's coming load from several experts, weighted by their past pinball loss.

Called by `forecaster`. An expert gives a location and a scale; its residual histograms turn them into quantiles
(`residual_histograms`). Pinball loss is convex, so the weighted mean of quantiles never loses more than the experts do
on average. Weights that fall exponentially in the recent loss follow the best expert of each host. One slot's loss at
p99 carries little information. A host's weights therefore start from the pool's, and stay near them longer for rarer
levels. Each level is also corrected as in adaptive conformal inference: up after a miss, down after a hit. Coverage
then holds where every expert is wrong. The correction is slow and sets in over a day: a fast one made short series
worse.

Invariant: a slot without a record (nan) changes nothing; quantiles rise with their level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled
from cotide_predictors.host_load.residual_histograms import (
    BINS,
    BLOCKS,
    Counts,
    Flags,
    add_residuals,
    bin_edges,
    bins_of,
    residual_quantiles,
    standard_shares,
)

LEVELS: Final = (0.5, 0.9, 0.99)
HALF_LIFE_SLOTS: Final = 2016.0
"""A week of five-minute slots: shorter memories lost the rare peaks behind a p99 (docs/results/host-load.json)."""
LOSS_HALF_LIFE_SLOTS: Final = 288.0
"""A day of losses decides between experts (chosen)."""
SHARPNESS: Final = 10.0
"""Nats that an expert's weight loses for a loss higher by the experts' mean loss (measured: 1 and 3 were worse)."""
POOL_RECORDS: Final = 200.0
"""Records that the pooled prior counts as, against a host's own (measured: 6 and 24 were worse on young hosts)."""
POOL_RECORDS_LINEAR: Final = 4.0
"""The same for the experts of raw level, which differ most between hosts (chosen)."""
STANDARD_RECORDS: Final = 20.0
"""Records that the standard distribution counts as within the pool (chosen)."""
_CORRECTION_RECORDS: Final = 288.0
"""Records after which half of the level correction is in force (chosen: a day)."""
_RESCALE_ABOVE: Final = 1e12


class QuantileMixture:
    """The state of n hosts and K experts; those from column ``linear`` on give raw levels.

    Attributes
    ----------
    levels : (Q,) the nominal levels, rising.
    asked : (n, Q) the corrected levels in force.
    """

    def __init__(self, hosts: int, experts: int, linear: int, levels: Sequence[float] = LEVELS) -> None:
        self.levels = np.asarray(levels, dtype=np.float64)
        asked = len(self.levels)
        tail = 1 - self.levels
        # Rarer levels move in smaller steps and stay within a few times their own tail (chosen).
        self._steps = np.minimum(0.003, 0.1 * tail)
        self._low = self.levels - np.minimum(0.2, 3 * tail)
        self._high = np.minimum(self.levels + 0.2, 1 - 0.2 * tail)
        self._pool_slots = np.maximum(12.0, 1 / tail)
        self._linear = linear
        self._edges = bin_edges(experts, linear)
        self._prior_records = np.where(np.arange(experts) >= linear, POOL_RECORDS_LINEAR, POOL_RECORDS)
        shares = np.tile(standard_shares(), (experts, 1))
        shares[linear:] = 1 / BINS
        self._standard = STANDARD_RECORDS * shares
        self._pool = np.zeros((experts, BINS))
        self._weight = 1.0
        self.counts: Counts = np.zeros((hosts, experts, BINS), dtype=np.float32)
        self.blocks: Counts = np.zeros((hosts, experts, BLOCKS), dtype=np.float32)
        self.masses = np.zeros(hosts)
        self.losses = np.zeros((hosts, asked, experts))
        self.loss_masses = np.zeros(hosts)
        self.asked = np.tile(self.levels, (hosts, 1))

    def forecast(
        self, locations: Floats, scales: Floats, rows: NDArray[np.intp] | None = None
    ) -> tuple[Floats, Floats]:
        """Return the mixed quantiles (n, Q) and those of each expert (n, Q, K) for locations and scales (n, K).

        ``rows``: forecast these hosts only, with their locations and scales.
        """
        hosts, experts = locations.shape
        part: NDArray[np.intp] | slice = slice(None) if rows is None else rows
        each = np.empty((hosts, len(self.levels), experts))
        pool = self._pool / self._weight + self._standard
        prior = self._weight * self._prior_records[:, None] * pool / pool.sum(axis=1, keepdims=True)
        residual_quantiles(
            self.counts[part], self.blocks[part], self.masses[part], prior, self.asked[part], self._edges, each
        )
        mixed = np.empty((hosts, len(self.levels)))
        sums = self.losses.sum(axis=0)
        pooled = sums / np.maximum(sums.mean(axis=1, keepdims=True), 1e-12)
        weights = np.empty_like(each)
        _weigh(self.losses[part], self.loss_masses[part], pooled, self._pool_slots, weights)
        # numpy's exponential over the array takes a tenth of the time of one by one in a compiled loop.
        np.exp(weights, out=weights)
        _mix(each, locations, scales, weights, mixed)
        return mixed, each

    def record(self, values: Floats, locations: Floats, scales: Floats, mixed: Floats, each: Floats) -> None:
        """Learn from the outcome, ``values`` (n,) with nan where unknown, after the given forecast."""
        present = np.isfinite(values)
        if self._weight > _RESCALE_ABOVE:
            self.counts /= np.float32(self._weight)
            self.blocks /= np.float32(self._weight)
            self.masses /= self._weight
            self._pool /= self._weight
            self._weight = 1.0
        self._weight *= 2 ** (1 / HALF_LIFE_SLOTS)
        indices = bins_of(values, locations, scales, self._linear)
        # As a numpy scalar: plain Python's sum with a float32 count would round the weight first. A kernel's does not.
        add_residuals(self.counts, self.blocks, self._pool, present, indices, np.float64(self._weight))
        self.masses += np.where(present, self._weight, 0.0)
        _score(values, present, each, self.levels, self.losses, self.loss_masses)
        records = self.masses / self._weight
        _correct(values, present, mixed, records, self.levels, self._steps, self._low, self._high, self.asked)

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget the hosts of these rows; the pool keeps what it learnt from them."""
        for state in (self.counts, self.blocks, self.masses, self.losses, self.loss_masses):
            state[rows] = 0
        self.asked[rows] = self.levels


@compiled
def _weigh(losses: Floats, loss_masses: Floats, pooled: Floats, pool_slots: Floats, weights: Floats) -> None:
    """Write the logarithm of each expert's weight (n, Q, K), 0 for the best of a host at a level."""
    hosts, asked, experts = losses.shape
    for host in range(hosts):
        for level in range(asked):
            mean = 0.0
            for expert in range(experts):
                mean += losses[host, level, expert] / experts
            own = loss_masses[host] if mean > 1e-12 else 0.0
            per_loss = own / mean if own > 0.0 else 0.0
            shared = pool_slots[level]
            scale = 1.0 / (own + shared)
            lowest = np.inf
            for expert in range(experts):
                score = (per_loss * losses[host, level, expert] + shared * pooled[level, expert]) * scale
                weights[host, level, expert] = score
                lowest = min(lowest, score)
            for expert in range(experts):
                weights[host, level, expert] = -SHARPNESS * (weights[host, level, expert] - lowest)


@compiled
def _mix(each: Floats, locations: Floats, scales: Floats, weights: Floats, mixed: Floats) -> None:
    """Turn residual quantiles into loads in place, and write their weighted mean, made to rise with the level."""
    hosts, asked, experts = each.shape
    for host in range(hosts):
        before = -np.inf
        for level in range(asked):
            total, value = 0.0, 0.0
            for expert in range(experts):
                load = locations[host, expert] + scales[host, expert] * each[host, level, expert]
                each[host, level, expert] = load
                total += weights[host, level, expert]
                value += weights[host, level, expert] * load
            before = max(before, value / total)
            mixed[host, level] = before


@compiled
def _score(values: Floats, present: Flags, each: Floats, levels: Floats, losses: Floats, loss_masses: Floats) -> None:
    """Add the slot's pinball losses to the discounted sums, in place."""
    decay = 2.0 ** (-1.0 / LOSS_HALF_LIFE_SLOTS)
    hosts, asked, experts = each.shape
    for host in range(hosts):
        if not present[host]:
            continue
        loss_masses[host] = loss_masses[host] * decay + 1.0
        for level in range(asked):
            for expert in range(experts):
                over = values[host] - each[host, level, expert]
                loss = max(levels[level] * over, (levels[level] - 1.0) * over)
                losses[host, level, expert] = losses[host, level, expert] * decay + loss


@compiled
def _correct(
    values: Floats, present: Flags, mixed: Floats, records: Floats, levels: Floats, steps: Floats, low: Floats,
    high: Floats, asked: Floats,
) -> None:  # fmt: skip
    """Move each host's corrected levels up after a miss and down after a hit, in place."""
    for host in range(len(values)):
        if not present[host]:
            continue
        ramp = records[host] / (records[host] + _CORRECTION_RECORDS)
        for level in range(len(levels)):
            hit = values[host] <= mixed[host, level]
            moved = asked[host, level] + ramp * steps[level] * (levels[level] - 1.0 if hit else levels[level])
            asked[host, level] = min(max(moved, low[level]), high[level])

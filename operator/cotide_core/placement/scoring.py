"""Ranks: how good each feasible node is for a pod; composable, higher is better.

Used by `policies` to build a `placement.Policy`; evaluated by `candidates`. A rank is a function of (snapshot, shape,
rows) to one float per row, so a policy is a weighted sum written in one line. Ranks that depend only on the row and the
shape are cached by shape and updated for changed rows only.

Every bind changes one row for every shape. A rank therefore also returns a function for one row in plain numbers, ten
times faster than arrays of one. The function holds the cells that it reads, and is valid as long as its snapshot.
Invariant: both ways give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.placement.feasibility import Rows, picked
from cotide_core.state.node_columns import CPU_COLUMN
from cotide_core.state.shapes import FitShape
from cotide_core.state.snapshot import Snapshot

RATE_SCALE: Final = 10_000.0
"""Requests per second at which `LowRate` gives one half (chosen: the middle of the paper's 1k to 200k on a log
scale)."""
PACKED_RANK_WEIGHT: Final = 1 / 400
"""Weight of a policy's own rank in `packed`. All terms of QPSM's, 13.5, then weigh less than a thirtieth of a node.
Against a pod's own wishes, a node weighs as kube-scheduler's MostAllocated does (chosen).
"""


RowScore = Callable[[int], float]
"""Returns the score of one row."""


class Rank(Protocol):
    """One term of a node's score."""

    @property
    def cacheable(self) -> bool:
        """Whether the value of a row changes only with the row."""
        ...

    @property
    def span(self) -> float:
        """Upper bound of the difference between the best and the worst value."""
        ...

    def scores(self, snapshot: Snapshot, shape: FitShape, rows: Rows) -> Floats:
        """Return one finite float per row."""
        ...

    def row_score(self, snapshot: Snapshot, shape: FitShape) -> RowScore:
        """Return a function that gives the same for one row, as long as the snapshot shows all."""
        ...


@dataclass(frozen=True, slots=True)
class LeastAllocated:
    """Mean share that stays free of cpu, memory and the other requested resources: kube-scheduler's default.

    As in kube-scheduler, containers without a request count with 100m cpu and 200Mi memory each, for waiting pods and
    for placed ones. Pods of reclaimed capacity are scored by their reclaimed requests alone. For pods with phases, cpu
    counts with the coming requests: otherwise pods in small phases would gather on one node and grow there together. A
    resource that is used up counts as 0, also beyond its limit.
    """

    cacheable: bool = True
    span: float = 1.0

    def scores(self, snapshot: Snapshot, shape: FitShape, rows: Rows) -> Floats:
        """Return values in [0, 1]; 1 is an empty node."""
        left = picked(snapshot.free, shape.scored_columns, rows) - shape.scored_amounts
        if shape.physical is None:  # then cpu and memory come first
            left[0] -= np.minimum(snapshot.growth_millicores[rows], snapshot.free[CPU_COLUMN][rows])
            left[:2] -= snapshot.unrequested[:, rows]
        shares = np.maximum(left, 0) / np.maximum(1, picked(snapshot.allocatable, shape.scored_columns, rows))
        total: Floats = np.add.reduce(shares, axis=0)
        return total / len(shares)

    def row_score(self, snapshot: Snapshot, shape: FitShape) -> RowScore:
        """Return a function that gives the same for one row."""
        cells, count = snapshot.cells, len(shape.scored)
        free, allocatable, growth = cells.free, cells.allocatable, cells.growth_millicores
        scored = [(free[column], allocatable[column], amount) for column, amount in shape.scored]
        if shape.physical is not None:
            return lambda row: _with_shares(scored, row, 0.0) / count
        (free_cpu, offered_cpu, cpu), (free_memory, offered_memory, memory) = scored[:2]
        counted_cpu, counted_memory = cells.unrequested
        others = scored[2:]

        def score(row: int) -> float:
            available, offered = free_cpu[row], offered_cpu[row]
            left = available - cpu - min(growth[row], available) - counted_cpu[row]
            total = (left if left > 0 else 0) / (offered if offered > 1 else 1)
            left, offered = free_memory[row] - memory - counted_memory[row], offered_memory[row]
            total += (left if left > 0 else 0) / (offered if offered > 1 else 1)
            return (_with_shares(others, row, total) if others else total) / count

        return score


def _with_shares(scored: Sequence[tuple[memoryview, memoryview, int]], row: int, total: float) -> float:
    """Add the free shares of a row to a total."""
    for free, offers, amount in scored:
        left, offered = free[row] - amount, offers[row]
        total += (left if left > 0 else 0) / (offered if offered > 1 else 1)
    return total


@dataclass(frozen=True, slots=True)
class WithoutService:
    """1 without an online service on the node, otherwise 0 (Ou 2024, section 4.3: such nodes need no forecast)."""

    cacheable: bool = True
    span: float = 1.0

    def scores(self, snapshot: Snapshot, shape: FitShape, rows: Rows) -> Floats:
        """Return 0 or 1."""
        del shape
        return np.asarray(snapshot.service_counts[rows] == 0, np.float64)

    def row_score(self, snapshot: Snapshot, shape: FitShape) -> RowScore:
        """Return a function that gives the same for one row."""
        del shape
        counts = snapshot.cells.service_counts
        return lambda row: 1.0 if counts[row] == 0 else 0.0


@dataclass(frozen=True, slots=True)
class LowRate:
    """Nodes with quiet online services first: ``1 / (1 + rate / RATE_SCALE)``.

    It only orders the nodes for the model's checks, since the measured risk is above all a threshold on the rate.
    """

    cacheable: bool = True
    span: float = 1.0

    def scores(self, snapshot: Snapshot, shape: FitShape, rows: Rows) -> Floats:
        """Return values in (0, 1]."""
        del shape
        return 1.0 / (1.0 + snapshot.service_rates[rows] / RATE_SCALE)

    def row_score(self, snapshot: Snapshot, shape: FitShape) -> RowScore:
        """Return a function that gives the same for one row."""
        del shape
        rates = snapshot.cells.service_rates
        return lambda row: 1.0 / (1.0 + rates[row] / RATE_SCALE)


@dataclass(frozen=True, slots=True)
class LowPressure:
    """Nodes with the lowest cpu requests of batch and gratis pods first: shortest slowdown, so shortest completion."""

    cacheable: bool = True
    span: float = 1.0

    def scores(self, snapshot: Snapshot, shape: FitShape, rows: Rows) -> Floats:
        """Return ``1 / (1 + pressure)`` with the pressure after the placement of a batch pod."""
        millicores = snapshot.batch_millicores[rows] + (0 if shape.online else shape.millicores)
        return 1.0 / (1.0 + millicores / np.maximum(1, snapshot.allocatable[CPU_COLUMN, rows]))

    def row_score(self, snapshot: Snapshot, shape: FitShape) -> RowScore:
        """Return a function that gives the same for one row."""
        held, offers = snapshot.cells.batch_millicores, snapshot.cells.allocatable[CPU_COLUMN]
        own = 0 if shape.online else shape.millicores

        def score(row: int) -> float:
            offered = offers[row]
            return 1.0 / (1.0 + (held[row] + own) / (offered if offered > 1 else 1))

        return score


@dataclass(slots=True)
class RandomRank:
    """A fresh uniform draw for every node at every decision: the paper's random strategy.

    The generator belongs to one policy of one engine, so the same events draw the same numbers again.
    """

    generator: np.random.Generator
    cacheable: bool = False
    span: float = 1.0

    def scores(self, snapshot: Snapshot, shape: FitShape, rows: Rows) -> Floats:
        """Return values in [0, 1)."""
        del shape
        return self.generator.random(len(snapshot.alive[rows]))

    def row_score(self, snapshot: Snapshot, shape: FitShape) -> RowScore:
        """Return a function that draws for any row."""
        del snapshot, shape
        return lambda _: float(self.generator.random())


@dataclass(frozen=True, slots=True)
class Weighted:
    """A weighted sum of ranks."""

    terms: tuple[tuple[Rank, float], ...]

    @property
    def cacheable(self) -> bool:
        """Whether every term is."""
        return all(rank.cacheable for rank, _ in self.terms)

    @property
    def span(self) -> float:
        """The sum of the terms'."""
        return sum(abs(weight) * rank.span for rank, weight in self.terms)

    def scores(self, snapshot: Snapshot, shape: FitShape, rows: Rows) -> Floats:
        """Return the sum."""
        total = np.zeros(len(snapshot.alive[rows]))
        for rank, weight in self.terms:
            total += weight * rank.scores(snapshot, shape, rows)
        return total

    def row_score(self, snapshot: Snapshot, shape: FitShape) -> RowScore:
        """Return a function that gives the same for one row."""
        terms = [(rank.row_score(snapshot, shape), weight) for rank, weight in self.terms]

        def score(row: int) -> float:
            total = 0.0
            for of_row, weight in terms:
                total += weight * of_row(row)
            return total

        return score


def packed(rank: Rank) -> Weighted:
    """Reverse a rank: the least free share first (kube-scheduler's MostAllocated), and by rank between equals."""
    return Weighted(((LeastAllocated(), -1.0), (rank, PACKED_RANK_WEIGHT)))

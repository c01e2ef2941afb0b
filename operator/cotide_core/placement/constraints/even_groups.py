"""The best row of a shape that only prefers an even spread, without a scan of all rows.

Called by `candidates`. Rows in the same domains with equal numbers of own matching pods have the same value for a
spread. They form a group; within a group the policy's own score decides. A placement moves one row to another group and
adds to a few sums. Then the groups are compared: a handful, independent of the number of nodes. Invariant: scores equal
those of `topology_spread.evenness`, bit by bit (a Hypothesis test compares them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.placement.constraints.domains import Domains
from cotide_core.placement.constraints.topology_spread import (
    HOSTNAME,
    POINTS,
    counted_rows,
    preferred_spreads,
    ranked_rows,
    weight_of,
)
from cotide_core.placement.label_index import ABSENT, LabelIndex
from cotide_core.placement.top_rows import Ranking, Ties
from cotide_core.state.selection.peers import Counter
from cotide_core.state.shapes import FitShape
from cotide_core.state.snapshot import Snapshot

MAX_GROUPS: Final = 96
"""With more groups a look at every row is about as fast (chosen: a group takes half a microsecond)."""
KEPT: Final = 32
"""Best rows of a group in sorted order (chosen: there are several groups, and each list costs a pass)."""
_MAX_CODES: Final = 65_536
"""Combinations of domains in a table; more would exceed the kept groups."""
Key = tuple[int, ...]
"""For each constraint the number of the domain, or the pods on the row itself; `ABSENT` without the label. Empty if
rows are not ranked.
"""


@dataclass(slots=True)
class _Constraint:
    """One preferred constraint as of the latest rebuild."""

    allowance: int
    """Its maximal skew, less one."""
    numbers: memoryview
    """By row, the number of the domain."""
    by_row: bool
    """Whether each row is a domain."""
    counted: memoryview
    """By row, whether its pods count."""
    sums: list[int]
    """Pods by domain."""
    seen: dict[int, int]
    """Counted pods by row so far; the same for all constraints of one counter."""


class _Group:
    """Rows of equal value for a spread.

    Attributes
    ----------
    fits : how many of them fit the shape.
    top, equals : the highest score among them and how many have it; None until it is computed.
    fixed : the cost of the pods that count on the row itself.
    parts : the costs by domain: sums, the number of the domain, weight and allowance.
    """

    __slots__ = ("equals", "fits", "fixed", "key", "number", "parts", "ranking", "top")

    def __init__(self, number: int, key: Key, ties: Ties) -> None:
        self.number = number
        self.key = key
        self.fits = 0
        self.ranking = Ranking(ties, KEPT)
        self.top: float | None = None
        self.equals = 0
        self.fixed = 0.0
        self.parts: list[tuple[list[int], int, float, int]] = []


class EvenGroups:
    """The rows that fit a shape, grouped by the counts of its spread constraints.

    Parameters
    ----------
    weight : the most that an even spread adds to a score.
    """

    def __init__(self, shape: FitShape, index: LabelIndex, ties: Ties, weight: float) -> None:
        self._shape = shape
        self._index = index
        self._ties = ties
        self._weight = weight
        self._constraints: list[_Constraint] = []
        self._counters: list[tuple[Counter, dict[int, int], list[_Constraint]]] = []
        """Each counter with its last seen state, and its constraints by domain."""
        self._moves = False
        """Whether one pod more or less on a row moves it to another group."""
        self._ranked = memoryview(b"")
        self._groups: list[_Group] = []
        self._by_key: dict[Key, int] = {}
        self._group_of: Integers = np.zeros(0, np.int64)
        self._cells = self._group_of.data
        self._alive: list[_Group] = []
        """The groups with rows that fit, without those that a spread does not rank."""
        self._unranked: list[_Group] = []
        self._ranked_fits = 0
        self._weighed = -1
        """Number of ranked rows that fitted when the groups got their weights; -1 if they need others."""

    def rebuild(self, snapshot: Snapshot, scores: Floats) -> bool:
        """Group all rows; False for too many groups, and then no other method may be called.

        Parameters
        ----------
        scores : (N,) of the rank; -inf where the shape does not fit.
        """
        domains = Domains(self._index, snapshot)
        assert self._shape.peers is not None  # noqa: S101 - the caller looked
        soft = preferred_spreads(self._shape.peers)
        ranked = ranked_rows(soft, domains)
        rows_of = snapshot.state.matches.rows
        self._ranked = ranked.data
        self._constraints, self._groups, self._by_key = [], [], {}
        self._alive, self._unranked = [], []
        self._ranked_fits, self._weighed = 0, -1
        seen = {counter: dict(rows_of(counter)) for _, counter, _ in soft}
        codes, codes_most = np.zeros(snapshot.size, np.int64), 1
        for spread, counter, _ in soft:
            numbers, size = domains.of(spread.topology_key)
            by_row = spread.topology_key == HOSTNAME
            counted = ranked if by_row else counted_rows(self._shape, spread, ranked, domains) & (numbers >= 0)
            sums = [] if by_row else domains.sums(spread.topology_key, seen[counter], counted).tolist()
            self._constraints.append(
                _Constraint(spread.max_skew - 1, numbers.data, by_row, counted.data, sums, seen[counter])
            )
            parts = 2 if by_row else size + 1
            codes_most *= parts
            if codes_most > _MAX_CODES:
                return False
            codes = codes * parts + (np.minimum(numbers, 0) if by_row else numbers) + 1
        fits = scores > -np.inf
        codes = np.where(ranked, codes, codes_most)
        found = np.flatnonzero(np.bincount(codes[fits], minlength=codes_most + 1))
        if len(found) > MAX_GROUPS:
            return False
        first = np.zeros(codes_most + 1, np.int64)
        first[codes[fits]] = np.flatnonzero(fits)
        groups = np.full(codes_most + 1, ABSENT, np.int64)
        groups[found] = [self._group(self._key(row, alone=True)) for row in first[found].tolist()]
        self._group_of = np.where(fits, groups[codes], ABSENT)
        self._cells = self._group_of.data
        for number, count in enumerate(np.bincount(self._group_of[fits], minlength=len(self._groups)).tolist()):
            self._count(self._groups[number], count)
        self._moves = any(constraint.by_row for constraint in self._constraints)
        self._counters = [
            (
                counter,
                counts_by_row,
                [
                    constraint
                    for constraint in self._constraints
                    if constraint.seen is counts_by_row and not constraint.by_row
                ],
            )
            for counter, counts_by_row in seen.items()
        ]
        for row in {row for constraint in self._constraints if constraint.by_row for row in constraint.seen}:
            if self._cells[row] >= 0:
                self._leave(row, scores.item(row))
                self._enter(row, scores.item(row))
        return len(self._groups) <= MAX_GROUPS

    def take(self, row: int, before: float, after: float) -> bool:
        """Apply a changed row, with its score before and after; False if there are too many groups now."""
        moved = False
        for counter, seen, by_domain in self._counters:
            now, known = counter.rows.get(row, 0), seen.get(row, 0)
            if now != known:
                seen[row] = now
                moved = self._moves
                for constraint in by_domain:
                    if constraint.counted[row]:
                        constraint.sums[constraint.numbers[row]] += now - known
        number = self._cells[row]
        if number >= 0:
            if not moved and after > -np.inf:
                group = self._groups[number]
                group.ranking.change(row, before, after)
                group.top = None
                return True
            self._leave(row, before)
        if after > -np.inf:
            self._enter(row, after)
        return len(self._groups) <= MAX_GROUPS

    def draw(self, scores: Floats) -> int:
        """Return one of the rows with the highest score, spread included."""
        best, equals = -np.inf, 0
        chosen: list[_Group] = []
        for group, even in self._evens():
            top = group.top
            if top is None:
                top = self._look(group, scores)
            total = top + even
            if total > best:
                best, equals, chosen = total, group.equals, [group]
            elif total == best:
                equals += group.equals
                chosen.append(group)
        drawn = self._ties.pick(equals)
        for group in chosen:
            if drawn < group.equals:
                return group.ranking.row(drawn)
            drawn -= group.equals
        raise AssertionError("no row fits")

    def best(self, scores: Floats, count: int) -> list[int]:
        """Return the rows with the `count` highest scores, spread included, best first."""
        positions = self._ties.positions(len(scores))
        found = sorted(
            (-(scores.item(row) + even), positions.item(row), row)
            for group, even in self._evens()
            for row in self._filled(group, scores, count).best(scores, count)
        )
        return [row for _, _, row in found[:count]]

    def scores(self, scores: Floats) -> Floats:
        """Return (N,) the scores, spread included."""
        added = np.zeros(len(self._groups) + 1)  # the last is for rows that do not fit
        for group, even in self._evens():
            added[group.number] = even
        return scores + added[self._group_of]

    def _evens(self) -> list[tuple[_Group, float]]:
        """Return the groups with rows that fit, and the amount that an even spread adds to the scores of each."""
        if self._weighed != self._ranked_fits:
            self._weigh()
        costs = []
        for group in self._alive:
            cost = group.fixed
            for sums, part, weight, allowance in group.parts:
                cost += sums[part] * weight + allowance
            costs.append(round(cost))
        most = max(costs, default=0)
        if most:
            both, most_added = most + min(costs), self._weight
            evens = [most_added * (POINTS * (both - cost) // most / POINTS) for cost in costs]
        else:
            evens = [self._weight] * len(costs)
        found = list(zip(self._alive, evens, strict=True))
        return found + [(group, 0.0) for group in self._unranked] if self._unranked else found

    def _weigh(self) -> None:
        """Compute the weight of a pod under each constraint, from the number of domains that have a row that fits."""
        ranked, constraints = self._alive, self._constraints
        weights = [
            weight_of(self._ranked_fits if constraint.by_row else len({group.key[index] for group in ranked}))
            for index, constraint in enumerate(constraints)
        ]
        for group in ranked:
            group.fixed, group.parts = 0.0, []
            for constraint, part, weight in zip(constraints, group.key, weights, strict=True):
                if part >= 0 and constraint.by_row:
                    group.fixed += part * weight + constraint.allowance
                elif part >= 0:
                    group.parts.append((constraint.sums, part, weight, constraint.allowance))
        self._weighed = self._ranked_fits

    def _look(self, group: _Group, scores: Floats) -> float:
        top, group.equals = self._filled(group, scores, 1).top(scores)
        group.top = top
        return top

    def _filled(self, group: _Group, scores: Floats, count: int) -> Ranking:
        if group.ranking.lacks(count):
            group.top = None
            group.ranking.fill(np.where(self._group_of == group.number, scores, -np.inf), count)
        return group.ranking

    def _key(self, row: int, *, alone: bool = False) -> Key:
        """Return the key of a row; `alone` as if no matching pod was on it."""
        if not self._ranked[row]:
            return ()
        return tuple(
            [
                constraint.numbers[row]
                if not constraint.by_row or constraint.numbers[row] < 0
                else 0
                if alone
                else constraint.seen.get(row, 0)
                for constraint in self._constraints
            ]
        )

    def _group(self, key: Key) -> int:
        number = self._by_key.get(key)
        if number is None:
            number = self._by_key[key] = len(self._groups)
            self._groups.append(_Group(number, key, self._ties))
        return number

    def _leave(self, row: int, score: float) -> None:
        group = self._groups[self._cells[row]]
        group.ranking.change(row, score, -np.inf)
        group.top = None
        self._cells[row] = ABSENT
        self._count(group, -1)

    def _enter(self, row: int, score: float) -> None:
        group = self._groups[self._group(self._key(row))]
        group.ranking.change(row, -np.inf, score)
        group.top = None
        self._cells[row] = group.number
        self._count(group, 1)

    def _count(self, group: _Group, change: int) -> None:
        """Record that more or fewer rows of a group fit."""
        before, group.fits = group.fits, group.fits + change
        if not before or not group.fits:
            listed = self._alive if group.key else self._unranked
            if group.fits:
                listed.append(group)
            elif before:
                listed.remove(group)
            self._weighed = -1
        if group.key:
            self._ranked_fits += change

"""Answers to the questions that the next decisions are likely to ask, fetched with one that had to be asked now.

Owned by `qos_guard`. A call of a forecaster costs as much as some fifty rows of it, so a call about one pod asks for
those behind it in the queue, too. What comes back waits here and is no answer yet: the guard's tables (see
`prediction_cache`) hear of it when its question is asked, if its row has not changed by then. Invariant: decisions are
those of a guard that asks each question when it comes up, to the last byte, however good the guess was.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.fetched import FETCHED_MARKS, find_fetched
from cotide_core.state.shapes import Shape


class Fetched(NamedTuple):
    """Answers to pairs of a shape and a row.

    Attributes
    ----------
    highest : (P,) probability of the mix that is most at risk.
    marks : (P, 4) row, its version when it was asked about, number of the Workload at risk, and basis.
    """

    highest: Floats
    marks: Integers

    def part(self, start: int, end: int) -> Fetched:
        """Return the answers from one to before another."""
        return Fetched(self.highest[start:end], self.marks[start:end])


class PrefetchedAnswers:
    """The answers of the latest call, by shape; those of a call before are gone."""

    def __init__(self) -> None:
        self._fetched = Fetched(np.zeros(0), np.zeros((0, FETCHED_MARKS), np.int64))
        self._spans: dict[Shape, tuple[int, int]] = {}

    def forget(self) -> None:
        """Drop everything: events come, or another model."""
        self._spans.clear()

    def keep(self, fetched: Fetched, spans: dict[Shape, tuple[int, int]]) -> None:
        """Take what a call brought; ``spans`` says from where to where the answers about each shape stand."""
        self._fetched, self._spans = fetched, spans

    def take(self, shape: Shape, rows: Integers, versions: Integers) -> Fetched | None:
        """Return the answers about a shape on rows as they are now; None unless all of them are there.

        Parameters
        ----------
        versions : (N,) of all rows, now.
        """
        span = self._spans.get(shape)
        if span is None:
            return None
        fetched = self._fetched
        found = find_fetched(rows, span[0], span[1], fetched.marks, versions)
        return None if found[0] < 0 else Fetched(fetched.highest.take(found), fetched.marks.take(found, axis=0))

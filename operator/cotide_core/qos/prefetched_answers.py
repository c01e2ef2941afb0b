"""Answers to the questions that the next decisions are likely to ask, fetched with one that had to be asked now.

Owned by `qos_guard`. A call of a forecaster costs as much as some fifty rows of it, so a call about one pod asks for
those behind it in the queue, too. What comes back waits here and is no answer yet: the guard's tables (see
`prediction_cache`) hear of it when its question is asked, if its row has not changed by then. Invariant: decisions are
those of a guard that asks each question when it comes up, to the last byte, however good the guess was.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.fetched import FETCHED_MARKS, write_fetched
from cotide_core.qos.prediction_cache import AnswerTables
from cotide_core.state.node_columns import NodeColumns
from cotide_core.state.shapes import Shape


class PrefetchedAnswers:
    """The answers of the latest call, by shape; those of a call before are gone."""

    def __init__(self) -> None:
        self._highest: Floats = np.zeros(0)
        self._marks: Integers = np.zeros((0, FETCHED_MARKS), np.int64)
        self._spans: dict[Shape, tuple[int, int]] = {}

    def forget(self) -> None:
        """Drop everything: events come, or another model."""
        self._spans.clear()

    def keep(self, highest: Floats, marks: Integers, spans: dict[Shape, tuple[int, int]]) -> None:
        """Take what a call brought.

        Parameters
        ----------
        highest, marks : (P,) and (P, 4) answers, as `kernels.fetched.worst_of_mixes` gives them.
        spans : from where to where those about each shape stand.
        """
        self._highest, self._marks, self._spans = highest, marks, spans

    def write(self, shape: Shape, rows: Integers, tables: AnswerTables, columns: NodeColumns, threshold: float) -> bool:
        """Write the answers about a shape on (K,) rows as they are now into the guard's tables, where the shape has an
        index; False, and nothing written, unless all of them are there."""
        span = self._spans.get(shape)
        return span is not None and write_fetched(
            tables.known_index(shape),
            rows,
            span[0],
            span[1],
            self._highest,
            self._marks,
            threshold,
            *tables.given(),
            columns.versions,
            columns.relief_versions,
        )

"""Answers to the probable questions of the next decisions, fetched together with a necessary one.

Owned by `qos_guard`. A call of a forecaster costs as much as some fifty of its rows, so a call about one pod includes
the pods behind it in the queue. The results wait here and are no answers yet. The guard's tables (see
`prediction_cache`) receive one when its question is asked, if its row has not changed by then. Invariant: decisions
equal those of a guard that asks each question when it comes up, to the last byte, for any quality of the guess.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.fetched import FETCHED_MARKS, write_fetched
from cotide_core.qos.prediction_cache import AnswerTables
from cotide_core.state.node_columns import NodeColumns
from cotide_core.state.shapes import Shape


class PrefetchedAnswers:
    """The answers of the latest call, by shape; answers of earlier calls are dropped."""

    def __init__(self) -> None:
        self._highest: Floats = np.zeros(0)
        self._marks: Integers = np.zeros((0, FETCHED_MARKS), np.int64)
        self._spans: dict[Shape, tuple[int, int]] = {}

    def forget(self) -> None:
        """Drop everything: before events, or for another model."""
        self._spans.clear()

    def keep(self, highest: Floats, marks: Integers, spans: dict[Shape, tuple[int, int]]) -> None:
        """Store the results of a call.

        Parameters
        ----------
        highest, marks : (P,) and (P, 4) answers, as `kernels.fetched.worst_of_mixes` gives them.
        spans : start and end of the answers about each shape.
        """
        self._highest, self._marks, self._spans = highest, marks, spans

    def write(self, shape: Shape, rows: Integers, tables: AnswerTables, columns: NodeColumns, threshold: float) -> bool:
        """Write the answers about a shape on (K,) current rows into the guard's tables, if the shape has an index.
        False, with nothing written, unless all of them are present.
        """
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

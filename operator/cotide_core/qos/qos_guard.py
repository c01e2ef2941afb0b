"""The QoS guard: which nodes would break an online service's latency limit if a pod went there.

One line of a policy (`placement.Policy.guard`). Asks the QoS forecaster about many nodes, and many pods, in one call,
since a call costs far more than a row, and stores the answers (`prediction_cache`). Ou 2024, section 4.3: a node
without an online service needs no forecast. A node's probability is the highest among its online pods, the arriving one
included.

Forecasts never fall when a mix grows, so a refusal outlives later placements. It holds until something on the node
improves, and it covers every larger pod of the same type. Invariant: a node is accepted only by an answer about the
current node, and refused only by an answer that still implies the refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import QosForecaster
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.kernels.fetched import FETCHED_MARKS, worst_of_mixes, write_fetched
from cotide_core.kernels.guard_answers import (
    BASIS,
    JOB,
    LEAST_MARKS,
    MARKS,
    REFUSED,
    SHAPE_COLUMNS,
    VERSION,
    WORST,
    by_service,
    cache_misses,
    least_risky,
    not_covered,
    take_answers,
)
from cotide_core.kernels.mix_rows import mixes_of
from cotide_core.qos.applicability import basis_of
from cotide_core.qos.mix_batch import mixes_after
from cotide_core.qos.prediction_cache import NONE, SHAPES_REMEMBERED, AnswerTables
from cotide_core.qos.prefetched_answers import PrefetchedAnswers
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot

CALL_ROWS: Final = 4096
"""Most (pod, node) pairs in one call (chosen: some 20 ms with an XGBoost model)."""
CALL_EFFORT: Final = 80
"""Cost of a call in pairs, in addition to its own (measured with an XGBoost model: 0.2 ms, and 2.5 us a pair)."""

Likely = Callable[[], Sequence[tuple[Shape, Integers]]]
"""Returns the batch and gratis shapes, with their rows, that the next decisions probably need, each shape once; the
rows carry a promised online pod.
"""

AtRisk = tuple[str, int, float, int]
"""Nodes that were refused to protect one service's latency limit. Holds the service, the number of nodes, their lowest
probability (how near the pod came), and the row of that probability, the lowest of equals.
"""


@cache
def _compile() -> None:
    """Compile the kernels of answers before the first decision, which must not wait for seconds."""
    whole, none, real = np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0)
    shapes, table = np.zeros((1, SHAPE_COLUMNS), np.int64), np.zeros((1, 1))
    marks, counts = np.zeros((1, 1, MARKS), np.int64), np.zeros((1, 1), np.int64)
    least = np.zeros((1, 1, LEAST_MARKS), np.int64)
    cache_misses(none, none, none, shapes, marks, table, least, table, whole, whole, whole, counts)
    take_answers(none, none, none, real, none, none, 0.0, shapes, marks, table, least, table, whole, whole)
    not_covered(0, none, shapes, marks, table, least, table, whole)
    by_service(0, none, marks, table)
    least_risky(real, 0.0, 0.0)
    ahead = np.zeros((1, 1, 1))
    mixes_of(none, none, shapes, table, whole, table, ahead, table, counts, counts, counts, whole, whole)
    worst_of_mixes(none, none, real, none, none, none)
    fetched = np.zeros((0, FETCHED_MARKS), np.int64)
    write_fetched(0, none, 0, 0, real, fetched, 0.0, shapes, marks, table, least, table, whole, whole)


class QosGuard:
    """Refuses nodes with a predicted probability of a violation above a threshold.

    Parameters
    ----------
    threshold : the highest probability that is accepted, in [0, 1].

    Attributes
    ----------
    effort : number of pairs passed to the forecaster so far, and `CALL_EFFORT` for each call.
    """

    def __init__(self, threshold: float) -> None:
        _compile()
        self.threshold = threshold
        self.effort = 0
        self._tables = AnswerTables()
        self._prefetched = PrefetchedAnswers()
        self._names: list[str] = []
        self._one_index, self._one_end = np.zeros(1, np.int64), np.zeros(1, np.int64)

    def forget(self) -> None:
        """Drop all answers, because another model may answer otherwise."""
        self._tables = AnswerTables()
        self._prefetched.forget()

    def begin(self) -> None:
        """Drop the prefetched answers without a question yet: events may change their nodes."""
        self._prefetched.forget()

    def concerned(self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp]) -> Booleans:
        """Return whether a forecast is needed for each row.

        A batch or gratis pod matters on nodes with an online service. An online pod matters on nodes with batch or
        gratis pods or other services: alone on a node it meets its limit or doesn't, on every node.
        """
        if not shape.online:
            return np.asarray(snapshot.service_counts[rows] > 0)
        if shape.fit.service is None:
            return np.zeros(len(rows), np.bool_)
        batch = snapshot.type_counts[:, rows].any(axis=0) if len(snapshot.types) else np.zeros(len(rows), np.bool_)
        return np.asarray(batch | (snapshot.service_counts[rows] > 0))

    def concerns(self, snapshot: Snapshot, shape: Shape, row: int) -> bool:
        """Return whether a forecast is needed for one row."""
        if shape.online:
            return bool(self.concerned(snapshot, shape, np.array([row], np.intp))[0])
        return snapshot.cells.service_counts[row] > 0

    def not_refused(self, snapshot: Snapshot, shape: Shape, fits: Booleans) -> NDArray[np.intp]:
        """Return the rows, of those where a shape fits, that no stored refusal covers now."""
        tables = self._tables
        tables.fit(snapshot)
        index = tables.index_of(snapshot, shape)
        rows = np.flatnonzero(fits & (tables.marks[index, : snapshot.size, REFUSED] != snapshot.relief_versions))
        if not len(rows) or shape.online:
            return rows
        return not_covered(
            index,
            rows,
            *tables.given(),
            snapshot.columns.relief_versions,
        )

    def probabilities(
        self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp], forecaster: QosForecaster
    ) -> Floats:
        """Return (K,) probabilities that a limit on each row would break with the pod there; 0 where unconcerned.

        Above the threshold a probability may belong to an earlier, smaller mix: the present one is at least as high.
        """
        self.prefetch(snapshot, [(shape, rows)], forecaster)
        return np.asarray(self._tables.probabilities[self._tables.known_index(shape), rows])

    def present_probabilities(
        self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp], forecaster: QosForecaster
    ) -> Floats:
        """Return the probabilities for the present nodes, refused ones included."""
        self.prefetch(snapshot, [(shape, rows)], forecaster)
        tables = self._tables
        index = tables.known_index(shape)
        stale = rows[tables.marks[index, rows, VERSION] != snapshot.versions[rows]]
        for start in range(0, len(stale), CALL_ROWS):
            part = np.asarray(stale[start : start + CALL_ROWS], np.int64)
            self._ask(snapshot, np.full(len(part), index, np.int64), part, forecaster)
        return np.asarray(tables.probabilities[index, rows])

    def known(self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp]) -> Floats | None:
        """Return the stored probabilities; None if a call would be needed."""
        tables = self._tables
        tables.fit(snapshot)
        index = tables.index_of(snapshot, shape)
        self._one_index[0], self._one_end[0] = index, len(rows)
        if self._cache_misses(snapshot, self._one_index, self._one_end, rows).shape[1]:
            return None
        return np.asarray(tables.probabilities[index].take(rows))

    def found_probabilities(self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp]) -> Floats:
        """Return the probabilities for rows that the forecaster just answered."""
        return np.asarray(self._tables.probabilities[self._tables.index_of(snapshot, shape)].take(rows))

    def probabilities_with(
        self, snapshot: Snapshot, shape: Shape, rows: Integers, forecaster: QosForecaster, likely: Likely
    ) -> Floats:
        """Return `probabilities` of a batch or gratis shape on a few rows. A necessary call also covers the probable
        next questions.
        """
        tables = self._tables
        tables.fit(snapshot)
        index = tables.index_of(snapshot, shape)
        self._one_index[0], self._one_end[0] = index, len(rows)
        unknown = self._cache_misses(snapshot, self._one_index, self._one_end, rows)[1]
        prefetched, columns = self._prefetched, snapshot.columns
        if len(unknown) and not prefetched.write(shape, unknown, tables, columns, self.threshold):
            self._fetch(snapshot, shape, unknown, forecaster, likely())
            prefetched.write(shape, unknown, tables, columns, self.threshold)
        return np.asarray(tables.probabilities[index].take(rows))

    def prefetch(
        self, snapshot: Snapshot, wanted: Sequence[tuple[Shape, NDArray[np.intp]]], forecaster: QosForecaster
    ) -> None:
        """Answer for the rows of several shapes, with as few calls as possible."""
        sizes = [len(rows) for _, rows in wanted]
        if sum(sizes) > CALL_ROWS or len(wanted) > SHAPES_REMEMBERED:
            self._tables.fit(snapshot)
            self._find_out_in_parts(snapshot, wanted, forecaster)
        elif wanted:
            rows = wanted[0][1] if len(wanted) == 1 else np.concatenate([rows for _, rows in wanted])
            self.find_out(snapshot, [shape for shape, _ in wanted], list(accumulate(sizes)), rows, forecaster)

    def find_out(
        self,
        snapshot: Snapshot,
        shapes: Sequence[Shape],
        ends: Sequence[int],
        rows: NDArray[np.intp],
        forecaster: QosForecaster,
    ) -> None:
        """Answer for the rows of several shapes in one call: for each the rows up to its end, after those of the
        previous one.

        At most `CALL_ROWS` rows and `SHAPES_REMEMBERED` shapes.
        """
        tables = self._tables
        tables.fit(snapshot)
        indices = np.array([tables.index_of(snapshot, shape) for shape in shapes], np.int64)
        questions, about = self._cache_misses(snapshot, indices, np.array(ends, np.int64), rows)
        if len(about):
            for question in dict.fromkeys(questions.tolist()):
                tables.index_of(snapshot, shapes[question])
            self._ask(snapshot, indices[questions], about, forecaster)

    def ask(self, snapshot: Snapshot, pairs: Sequence[tuple[Shape, int]], forecaster: QosForecaster) -> list[float]:
        """Return the probability for each shape and row, with a promised pod concerned; all are computed again."""
        self._tables.fit(snapshot)
        answers: list[float] = []
        for start in range(0, len(pairs), CALL_ROWS):
            part = pairs[start : start + CALL_ROWS]
            for shape, _ in part:
                self._tables.index_of(snapshot, shape)
            answers.extend(self._ask_pairs(snapshot, part, forecaster))
        return answers

    def covers(self, snapshot: Snapshot, shape: Shape, row: int) -> bool:
        """Whether a batch or gratis shape is refused on a row, by the refusal of a smaller job of its type."""
        return self._tables.covers(snapshot, shape, row)

    def at_risk(self, shape: Shape, rows: NDArray[np.intp]) -> tuple[Floats, list[str], Integers]:
        """Return the latest probabilities of refused rows, the Workloads with the limits, and their bases."""
        tables = self._tables
        index = tables.known_index(shape)
        worst = tables.marks[index, rows, WORST].tolist()
        return (
            tables.probabilities[index, rows],
            [self._names[number] for number in worst],
            tables.marks[index, rows, BASIS],
        )

    def basis(self, shape: Shape, row: int) -> int:
        """Return the basis of the latest answer about a row (see `applicability`)."""
        return self._tables.marks.item(self._tables.known_index(shape), row, BASIS)

    def by_service(self, shape: Shape, rows: NDArray[np.intp]) -> list[AtRisk]:
        """Group refused rows by the Workload at risk, in order of appearance."""
        tables = self._tables
        groups, nearest = by_service(tables.known_index(shape), rows, tables.marks, tables.probabilities)
        numbers, counts, examples = groups.tolist()
        names = self._names
        return list(zip([names[number] for number in numbers], counts, nearest.tolist(), examples, strict=True))

    def _cache_misses(self, snapshot: Snapshot, indices: Integers, ends: Integers, rows: NDArray[np.intp]) -> Integers:
        tables, columns = self._tables, snapshot.columns
        return cache_misses(
            indices,
            ends,
            rows,
            *tables.given(),
            columns.versions,
            columns.relief_versions,
            columns.service_counts,
            columns.type_counts,
        )

    def _find_out_in_parts(
        self, snapshot: Snapshot, wanted: Sequence[tuple[Shape, NDArray[np.intp]]], forecaster: QosForecaster
    ) -> None:
        """Do the work of `prefetch` for more rows than one call can hold."""
        pairs: list[tuple[Shape, int]] = []
        for shape, rows in wanted:
            index = np.array([self._tables.index_of(snapshot, shape)], np.int64)
            unknown = self._cache_misses(snapshot, index, np.array([len(rows)], np.int64), rows)[1].tolist()
            for start in range(0, len(unknown), CALL_ROWS):
                part = unknown[start : start + CALL_ROWS]
                if len(pairs) + len(part) > CALL_ROWS:
                    self._ask_pairs(snapshot, pairs, forecaster)
                    pairs = []
                pairs.extend((shape, row) for row in part)
        if pairs:
            self._ask_pairs(snapshot, pairs, forecaster)

    def _ask_pairs(
        self, snapshot: Snapshot, pairs: Sequence[tuple[Shape, int]], forecaster: QosForecaster
    ) -> list[float]:
        """Ask about pairs of at most as many shapes as have an index."""
        answers: list[float] = []
        indices: list[int] = []
        shapes: set[Shape] = set()
        first = 0
        for shape, _ in pairs:
            if shape not in shapes and len(shapes) == SHAPES_REMEMBERED:
                rows = np.array([row for _, row in pairs[first : first + len(indices)]], np.int64)
                answers.extend(self._ask(snapshot, np.array(indices, np.int64), rows, forecaster).tolist())
                first += len(indices)
                indices, shapes = [], set()
            shapes.add(shape)
            indices.append(self._tables.index_of(snapshot, shape))
        rows = np.array([row for _, row in pairs[first:]], np.int64)
        answers.extend(self._ask(snapshot, np.array(indices, np.int64), rows, forecaster).tolist())
        return answers

    def _ask(self, snapshot: Snapshot, indices: Integers, rows: Integers, forecaster: QosForecaster) -> Floats:
        """Ask about P pairs of a shape and a row, store the answers and return them."""
        tables, columns = self._tables, snapshot.columns
        asked = mixes_after(snapshot, tables.shapes, tables.arriving, indices, rows)
        found = forecaster.answer(asked.mixes)
        self.effort += CALL_EFFORT + len(rows)
        self._names = columns.workload_names
        return take_answers(
            indices,
            rows,
            asked.starts,
            np.ascontiguousarray(found.probability, np.float64),
            asked.numbers,
            basis_of(found.outside, found.evidence),
            self.threshold,
            *tables.given(),
            columns.versions,
            columns.relief_versions,
        )

    def _fetch(
        self,
        snapshot: Snapshot,
        shape: Shape,
        rows: Integers,
        forecaster: QosForecaster,
        likely: Sequence[tuple[Shape, Integers]],
    ) -> None:
        """Ask about a shape on some rows, and in the same call about the probable next questions."""
        columns, horizon_of = snapshot.columns, snapshot.state.rate_forecasts.horizon_of
        asked = {shape: rows}
        for likely_shape, likely_rows in likely:
            asked[likely_shape] = np.concatenate([rows, likely_rows]) if likely_shape is shape else likely_rows
        jobs = [
            (key.type_column, key.input_bytes, key.fit.millicores, JOB, NONE, horizon_of(key.seconds)) for key in asked
        ]
        sizes = [len(asked_rows) for asked_rows in asked.values()]
        ends = list(accumulate(sizes))
        described = np.array(jobs, np.int64)
        indices, pairs = np.repeat(np.arange(len(asked)), sizes), np.concatenate(list(asked.values()))
        mixes = mixes_after(snapshot, described, np.zeros((len(asked), 2)), indices, pairs)
        found = forecaster.answer(mixes.mixes)
        self.effort += CALL_EFFORT + len(pairs)
        self._names = columns.workload_names
        probability = np.ascontiguousarray(found.probability, np.float64)
        bases = basis_of(found.outside, found.evidence)
        highest, marks = worst_of_mixes(pairs, mixes.starts, probability, mixes.numbers, bases, columns.versions)
        spans = {key: (end - size, end) for key, size, end in zip(asked, sizes, ends, strict=True)}
        self._prefetched.keep(highest, marks, spans)

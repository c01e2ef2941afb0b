"""The QoS guard: which nodes would break an online service's latency limit if a pod went there.

One line of a policy (`placement.Policy.guard`). Asks the QoS forecaster about many nodes, and many pods, in one call,
since a call costs far more than a row, and remembers the answers. Seed 003, section 4.3: a node without an online
service needs no forecast. A node's probability is the highest among its online pods, the arriving one included.

Forecasts never fall when a mix grows, so a refusal outlives what is placed after it: it stands until something on
the node got better, and it covers every larger pod of the same type (see `refusals`). Invariant: a node is accepted
only on an answer about the node as it is now, and refused only on an answer that still implies the refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.columns import Booleans, Floats, Integers
from cotide_core.forecasts import QosForecaster
from cotide_core.mix import Question, mixes_after
from cotide_core.refusals import Refusals
from cotide_core.shapes import Shape
from cotide_core.snapshot import Snapshot

CALL_ROWS: Final = 4096
"""Most (pod, node) pairs in one call (chosen: some 20 ms with an XGBoost model)."""
SHAPES_REMEMBERED: Final = 256
"""Shapes whose answers are kept, the latest used (chosen: 36 bytes a node each, 46 MB at 5,000 nodes)."""


@dataclass(slots=True)
class _Answers:
    probabilities: Floats
    versions: Integers
    """The row version that each answer is about; -1 for none."""
    reliefs: Integers
    """The row's relief version at that time."""
    refused: Integers
    """The same where the answer was a refusal; -1 where it was not. While both are equal the refusal stands."""
    worst: NDArray[np.int32]
    """Number of the Workload whose limit is most at risk."""
    expected_rate: float


class QosGuard:
    """Refuses nodes where the predicted probability of a violation is above a threshold.

    Parameters
    ----------
    threshold : the highest probability that is accepted, in [0, 1].

    Attributes
    ----------
    calls : of the forecaster so far.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.calls = 0
        self._answers: dict[Shape, _Answers] = {}
        self._refusals = Refusals()
        self._services: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}

    def forget(self) -> None:
        """Drop all answers: another model answers otherwise."""
        self._answers.clear()
        self._refusals = Refusals()

    def concerned(self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp]) -> Booleans:
        """Return whether a forecast is needed for each row.

        A batch or gratis pod matters where an online service runs. An online pod matters where batch or gratis
        pods or other services run: alone on a node it meets its limit or doesn't, wherever that node is.
        """
        if not shape.online:
            return np.asarray(snapshot.service_counts[rows] > 0)
        if shape.fit.service is None:
            return np.zeros(len(rows), np.bool_)
        batch = snapshot.type_counts[:, rows].any(axis=0) if len(snapshot.types) else np.zeros(len(rows), np.bool_)
        return np.asarray(batch | (snapshot.service_counts[rows] > 0))

    def not_refused(self, snapshot: Snapshot, shape: Shape, fits: Booleans) -> NDArray[np.intp]:
        """Return those of the rows where a shape fits that nothing remembered implies a refusal of, now."""
        answers = self._remembered(snapshot, shape)
        rows = np.flatnonzero(fits & (answers.refused != snapshot.relief_versions))
        return self._take_over(snapshot, shape, answers, rows) if len(rows) else rows

    def knows(self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp]) -> bool:
        """Whether `probabilities` of these rows would need no call."""
        return not len(self._unknown(snapshot, shape, rows))

    def probabilities(
        self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp], forecaster: QosForecaster
    ) -> Floats:
        """Return (K,) probabilities that a limit on each row would be broken with the pod there; 0 where unconcerned.

        Above the threshold a probability may be of an earlier, smaller mix: at least as high now.
        """
        self.prefetch(snapshot, [(shape, rows)], forecaster)
        return self._remembered(snapshot, shape).probabilities[rows]

    def prefetch(
        self, snapshot: Snapshot, wanted: Sequence[tuple[Shape, NDArray[np.intp]]], forecaster: QosForecaster
    ) -> None:
        """Find out about the rows of several shapes, with as few calls as possible."""
        questions: list[Question] = []
        pairs = 0
        for shape, rows in wanted:
            unknown = self._unknown(snapshot, shape, rows)
            for start in range(0, len(unknown), CALL_ROWS):
                part = unknown[start : start + CALL_ROWS]
                if pairs + len(part) > CALL_ROWS:
                    self._ask(snapshot, questions, forecaster)
                    questions, pairs = [], 0
                questions.append(Question(shape, part.tolist(), self._remembered(snapshot, shape).expected_rate))
                pairs += len(part)
        if questions:
            self._ask(snapshot, questions, forecaster)

    def ask(self, snapshot: Snapshot, pairs: Sequence[tuple[Shape, int]], forecaster: QosForecaster) -> list[float]:
        """Return the probability for each shape and row, a promised pod being concerned; all are asked about anew."""
        answers: list[float] = []
        for start in range(0, len(pairs), CALL_ROWS):
            part = pairs[start : start + CALL_ROWS]
            rates = [self._remembered(snapshot, shape).expected_rate for shape, _ in part]
            questions = [Question(shape, [row], rate) for (shape, row), rate in zip(part, rates, strict=True)]
            answers.extend(self._ask(snapshot, questions, forecaster).tolist())
        return answers

    def covers(self, snapshot: Snapshot, shape: Shape, row: int) -> bool:
        """Whether a batch or gratis shape is refused on a row since a smaller job of its type was."""
        return self._refusals.covers(snapshot, shape, row)

    def at_risk(self, shape: Shape, rows: NDArray[np.intp]) -> tuple[Floats, list[str]]:
        """Return the latest probabilities about some rows that were refused, and the Workloads that they are about."""
        answers = self._answers[shape]
        return answers.probabilities[rows], [self._services[number] for number in answers.worst[rows].tolist()]

    def _unknown(self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the rows that must be asked about; those that need no forecast are answered with 0 on the way."""
        answers = self._remembered(snapshot, shape)
        changed = answers.versions[rows] != snapshot.versions[rows]
        stale: NDArray[np.intp] = rows[changed & (answers.refused[rows] != snapshot.relief_versions[rows])]
        if not len(stale):
            return stale
        stale = self._take_over(snapshot, shape, answers, stale)
        needed = self.concerned(snapshot, shape, stale)
        if needed.all():
            return stale
        idle = stale[~needed]
        answers.probabilities[idle] = 0.0
        answers.versions[idle] = snapshot.versions[idle]
        answers.reliefs[idle] = snapshot.relief_versions[idle]
        answers.refused[idle] = -1
        asked: NDArray[np.intp] = stale[needed]
        return asked

    def _take_over(
        self, snapshot: Snapshot, shape: Shape, answers: _Answers, rows: NDArray[np.intp]
    ) -> NDArray[np.intp]:
        """Take a smaller pod's refusals over as answers about earlier versions of the rows; returns the other rows."""
        if shape.online:
            return rows
        covered, probabilities, worst = self._refusals.covering(snapshot, shape, rows)
        if not covered.any():
            return rows
        reliefs = snapshot.relief_versions[rows]
        covered &= answers.reliefs[rows] != reliefs
        taken = rows[covered]
        answers.probabilities[taken] = probabilities[covered]
        answers.versions[taken] = 0
        answers.reliefs[taken] = answers.refused[taken] = reliefs[covered]
        answers.worst[taken] = worst[covered]
        return rows[~covered]

    def _ask(self, snapshot: Snapshot, questions: Sequence[Question], forecaster: QosForecaster) -> Floats:
        asked = mixes_after(snapshot, questions)
        each = forecaster.violation_probability(asked.mixes)
        self.calls += 1
        highest, names = each, asked.services
        if len(each) > len(asked.starts):
            ends = np.append(asked.starts[1:], len(each))
            highest = np.maximum.reduceat(each, asked.starts)
            names = [asked.services[start] for start in asked.starts.tolist()]
            for pair in np.flatnonzero(ends - asked.starts > 1).tolist():
                start = int(asked.starts[pair])
                names[pair] = asked.services[start + int(np.argmax(each[start : ends[pair]]))]
        numbers = np.array([self._number(name) for name in names], np.int32)
        first = 0
        for question in questions:
            rows = np.array(question.rows, np.intp)
            answers = self._remembered(snapshot, question.shape)
            last = first + len(rows)
            probabilities = highest[first:last]
            answers.probabilities[rows] = probabilities
            answers.versions[rows] = snapshot.versions[rows]
            reliefs = answers.reliefs[rows] = snapshot.relief_versions[rows]
            answers.worst[rows] = numbers[first:last]
            refused = probabilities > self.threshold
            answers.refused[rows] = np.where(refused, reliefs, -1)
            if not question.shape.online and refused.any():
                worst = numbers[first:last][refused]
                self._refusals.note(snapshot, question.shape, rows[refused], probabilities[refused], worst)
            first = last
        return np.asarray(highest)

    def _number(self, service: str) -> int:
        number = self._numbers.get(service)
        if number is None:
            number = self._numbers[service] = len(self._services)
            self._services.append(service)
        return number

    def _remembered(self, snapshot: Snapshot, shape: Shape) -> _Answers:
        rate = snapshot.state.expected_rate(shape.fit.service) if shape.online else 0.0
        found = self._answers.pop(shape, None)
        if found is None or found.expected_rate != rate:
            size = snapshot.size
            never = np.full(size, -1, np.int64)
            found = _Answers(np.zeros(size), never, never.copy(), never.copy(), np.zeros(size, np.int32), rate)
        elif len(found.probabilities) < snapshot.size:
            missing = snapshot.size - len(found.probabilities)
            never = np.full(missing, -1, np.int64)
            found.probabilities = np.concatenate([found.probabilities, np.zeros(missing)])
            found.versions = np.concatenate([found.versions, never])
            found.reliefs = np.concatenate([found.reliefs, never])
            found.refused = np.concatenate([found.refused, never])
            found.worst = np.concatenate([found.worst, np.zeros(missing, np.int32)])
        self._answers[shape] = found  # at the end: the first is the one that was not used for longest
        if len(self._answers) > SHAPES_REMEMBERED:
            del self._answers[next(iter(self._answers))]
        return found

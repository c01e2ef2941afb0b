"""The QoS guard: which nodes would break an online service's latency limit if a pod went there.

One line of a policy (`placement.Policy.guard`). Asks the QoS forecaster about many nodes in one call, since a call
costs far more than a row, and remembers each answer until the node changes. Seed 003, section 4.3: a node without an
online service needs no forecast. A node's probability is the highest among its online pods, the arriving one included.
Invariant: a remembered answer equals what the forecaster would say now; nodes are refused only on such an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.columns import Booleans, Floats, Integers
from cotide_core.forecasts import QosForecaster
from cotide_core.mix import mixes_after
from cotide_core.shapes import Shape
from cotide_core.snapshot import Snapshot

CALL_ROWS: Final = 4096
"""Most candidates in one call when everything has to be asked (chosen: about 10 ms with an XGBoost model)."""


@dataclass(slots=True)
class _Answers:
    probabilities: Floats
    versions: Integers
    """The row version that each answer is about; -1 for none."""
    worst: list[str]
    """The Workload whose limit is most at risk."""
    expected_rate: float


class QosGuard:
    """Refuses nodes where the predicted probability of a violation is above a threshold.

    Parameters
    ----------
    threshold : the highest probability that is accepted, in [0, 1].
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._answers: dict[Shape, _Answers] = {}
        self.calls = 0
        """Calls of the forecaster so far."""

    def forget(self, used: set[Shape] | None = None) -> None:
        """Drop the answers of shapes no longer used, or all: another model answers otherwise."""
        self._answers = {} if used is None else {s: a for s, a in self._answers.items() if s in used}

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

    def probabilities(
        self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp], forecaster: QosForecaster
    ) -> Floats:
        """Return (K,) probabilities that a limit on each row would be broken with the pod there; 0 where
        unconcerned."""
        answers = self._remembered(snapshot, shape)
        stale = rows[answers.versions[rows] != snapshot.versions[rows]]
        if len(stale):
            needed = self.concerned(snapshot, shape, stale)
            idle = stale[~needed]
            answers.probabilities[idle] = 0.0
            answers.versions[idle] = snapshot.versions[idle]
            asked = stale[needed]
            for start in range(0, len(asked), CALL_ROWS):
                self._ask(snapshot, shape, asked[start : start + CALL_ROWS], forecaster, answers)
        return answers.probabilities[rows]

    def worst(self, shape: Shape, row: int) -> str:
        """Return the Workload that the latest answer about a row was about; empty when none was concerned."""
        answers = self._answers.get(shape)
        return "" if answers is None or row >= len(answers.worst) else answers.worst[row]

    def _ask(
        self,
        snapshot: Snapshot,
        shape: Shape,
        rows: NDArray[np.intp],
        forecaster: QosForecaster,
        answers: _Answers,
    ) -> None:
        candidates = mixes_after(snapshot, shape, rows, answers.expected_rate)
        each = forecaster.violation_probability(candidates.mixes)
        self.calls += 1
        answers.probabilities[rows] = np.maximum.reduceat(each, candidates.starts)
        answers.versions[rows] = snapshot.versions[rows]
        ends = np.append(candidates.starts[1:], len(each))
        for row, start, end in zip(rows.tolist(), candidates.starts.tolist(), ends.tolist(), strict=True):
            peak = start if end - start == 1 else start + int(np.argmax(each[start:end]))
            answers.worst[row] = candidates.services[peak]

    def _remembered(self, snapshot: Snapshot, shape: Shape) -> _Answers:
        rate = snapshot.state.expected_rate(shape.fit.service) if shape.online else 0.0
        found = self._answers.get(shape)
        if found is None or found.expected_rate != rate:
            size = snapshot.size
            found = _Answers(np.zeros(size), np.full(size, -1, np.int64), [""] * size, rate)
            self._answers[shape] = found
        elif len(found.probabilities) < snapshot.size:
            missing = snapshot.size - len(found.probabilities)
            found.probabilities = np.concatenate([found.probabilities, np.zeros(missing)])
            found.versions = np.concatenate([found.versions, np.full(missing, -1, np.int64)])
            found.worst.extend([""] * missing)
        return found

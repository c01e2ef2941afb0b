"""The phases of a type of task, from its earlier runs; they are scored on each next run before that run teaches.

Called by the operator's `usage.phase_learning`. A run is a path: cpu and memory over `PARTS` equal parts of its time.
The mean path of the last runs is cut where its level changes (`change_points`). A stretch needs the usage of nearly all
runs there, with a margin, and lasts its part of the mean run time. Each next run scores these phases and two rules
without cost: one need for all the time, the mean of earlier runs; and the task's maximum, which holds where nothing is
trusted::

    learning --`LEAST_SCORES` good ones--> trusted <--> fallen back (too often below what was used, or little saved)

Invariants: no need lies above the task's maximum; a scored run was never a training run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from cotide_core.errors import ModelError
from cotide_core.kernels.array_types import Floats
from cotide_core.limits import MAX_EXACT_INT, MAX_SECONDS
from cotide_core.phases.profile import MAX_PHASES
from cotide_predictors.phases.change_points import change_points

PARTS: Final = 48
"""Of a run's time. Chosen: a phase of a twentieth of the run has two."""
LEAST_READINGS: Final = 12
"""Of a run that teaches. Chosen: with fewer a short phase stays unseen."""
RUNS_KEPT: Final = 8
SCORES_KEPT: Final = 6
LEAST_SCORES: Final = 3
"""Chosen, as the two above: old behaviour is forgotten within a few runs."""
MAX_UNDERESTIMATED_SHARE: Final = 0.05
"""Largest part of the time in which learned needs may lie below the usage. Chosen: it costs speed at contention
only.
"""
SAVED_LEAST: Final = 0.1
"""Smallest part of the maximum that justifies a resize when it is given back. Chosen."""
MARGIN: Final = 1.15
QUANTILE: Final = 0.95
"""Quantile of the runs' usage in a stretch, and the margin on top. Chosen."""
RULES: Final = ("learned", "mean", "maximum")


class Need(NamedTuple):
    """A stretch of a task."""

    seconds: float
    millicores: int
    memory_bytes: int


class Score(NamedTuple):
    """The score of a rule on a run.

    Attributes
    ----------
    under : part of the time with a need below the usage.
    held : mean cpu of the need, as a part of the maximum.
    """

    under: float
    held: float


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The usage of a run.

    Attributes
    ----------
    seconds : its length. largest : request of the task, millicores and bytes, the first > 0.
    usage : (PARTS, 2) mean millicores and largest bytes of each part.
    """

    seconds: float
    largest: tuple[int, int]
    usage: Floats


def run_of(readings: Sequence[tuple[float, float, float]], seconds: float, largest: tuple[int, int]) -> Run | None:
    """Return a run from readings; None where there are too few or too many are missing.

    Parameters
    ----------
    readings : seconds since the start, millicores and bytes; nan where unknown.
    """
    if len(readings) < LEAST_READINGS or not 0 < seconds <= MAX_SECONDS or largest[0] <= 0:
        return None
    table = np.array(sorted(readings), np.float64)
    table = table[np.isfinite(table[:, 0]) & (table[:, 0] >= 0) & (table[:, 0] <= seconds)]
    middles = (np.arange(PARTS) + 0.5) / PARTS * seconds
    columns = []
    for column in (1, 2):
        known = table[np.isfinite(table[:, column]) & (table[:, column] >= 0) & (table[:, column] <= MAX_EXACT_INT)]
        if len(known) < LEAST_READINGS:
            if column == 1:
                return None
            columns.append(np.full(PARTS, float(largest[1])))
            continue
        columns.append(np.interp(middles, known[:, 0], known[:, column]))
    return Run(seconds, largest, np.column_stack(columns))


def learned(runs: Sequence[Run]) -> tuple[Need, ...]:
    """Return the needs of a type's runs, in order; ``runs`` has at least one."""
    largest = _largest(runs)
    paths = np.stack([run.usage for run in runs])
    scaled = np.minimum(paths / np.maximum(largest, 1.0), 1.0)
    cuts = change_points(scaled.mean(axis=0), most=MAX_PHASES)
    seconds = float(np.mean([run.seconds for run in runs]))
    levels = [paths[:, begin:end, 0].mean() for begin, end in zip((0, *cuts), (*cuts, PARTS), strict=True)]
    # A change comes a little earlier or later in each run: the higher of two neighbours lasts a part longer.
    moved = [cut + (1 if levels[index] > levels[index + 1] else -1) for index, cut in enumerate(cuts)]
    found = []
    for begin, end in zip((0, *moved), (*moved, PARTS), strict=True):
        if end <= begin:
            continue
        cpu, memory = (np.quantile(paths[:, begin:end, column], QUANTILE) * MARGIN for column in (0, 1))
        found.append(
            Need(
                (end - begin) / PARTS * seconds,
                max(1, min(math.ceil(cpu), int(largest[0]))),
                min(math.ceil(memory), int(largest[1])),
            )
        )
    return tuple(found)


def score(needs: Sequence[Need], run: Run) -> Score:
    """Return the score of needs on a run, going from one to the next by their seconds alone."""
    times = (np.arange(PARTS) + 0.5) / PARTS * run.seconds
    ends = np.cumsum([need.seconds for need in needs])
    indices = np.minimum(np.searchsorted(ends, times, side="right"), len(needs) - 1)
    kept = np.array([[need.millicores, need.memory_bytes] for need in needs], np.float64)[indices]
    used = np.minimum(run.usage, run.largest)
    return Score(float((kept < used).any(axis=1).mean()), float(kept[:, 0].mean() / run.largest[0]))


def _largest(runs: Sequence[Run]) -> Floats:
    largest: Floats = np.array([run.largest for run in runs], np.float64).max(axis=0)
    return largest


@dataclass(slots=True)
class LearnedPhases:
    """What one type of task taught one learner.

    Attributes
    ----------
    runs : the last ones. scores : of the last runs, by rule.
    """

    runs: deque[Run] = field(default_factory=lambda: deque(maxlen=RUNS_KEPT))
    scores: dict[str, deque[Score]] = field(default_factory=lambda: {rule: deque(maxlen=SCORES_KEPT) for rule in RULES})

    def add(self, run: Run) -> None:
        """Score the present phases on a run, and learn from it."""
        if self.runs and self.runs[-1].largest != run.largest:
            self.runs.clear()  # another task by now: its maximum differs
        if len(self.runs) > 1:
            levels = np.mean([run.usage.mean(axis=0) for run in self.runs], axis=0)
            flat = [Need(run.seconds, int(levels[0]), int(levels[1]))]
            everything = [Need(run.seconds, *run.largest)]
            for rule, needs in zip(RULES, (learned(self.runs), flat, everything), strict=True):
                self.scores[rule].append(score(needs, run))
        self.runs.append(run)

    @property
    def state(self) -> str:
        """``learning``, ``trusted`` or ``fallen back``."""
        scores = self.scores["learned"]
        if len(scores) < LEAST_SCORES:
            return "learning"
        under, held = (float(np.mean(column)) for column in zip(*scores, strict=True))
        return "trusted" if under <= MAX_UNDERESTIMATED_SHARE and held <= 1 - SAVED_LEAST else "fallen back"

    def needs(self) -> tuple[Need, ...]:
        """Return the phases of the next run; none where they are not trusted, or there is only one."""
        found = learned(self.runs) if self.state == "trusted" else ()
        return found if len(found) > 1 else ()

    def as_json(self) -> dict[str, Any]:
        """Return the state for a store."""
        return {
            "runs": [
                {"seconds": run.seconds, "largest": list(run.largest), "usage": np.rint(run.usage).tolist()}
                for run in self.runs
            ],
            "scores": {rule: [list(score) for score in scores] for rule, scores in self.scores.items()},
        }

    @classmethod
    def from_json(cls, data: Any) -> LearnedPhases:
        """Read the state of a store.

        Raises
        ------
        ModelError
            When it was not written by `as_json`.
        """
        found = cls()
        try:
            for entry in data["runs"][-RUNS_KEPT:]:
                usage = np.array(entry["usage"], np.float64)
                largest = (int(entry["largest"][0]), int(entry["largest"][1]))
                seconds = float(entry["seconds"])
                bounded = usage.shape == (PARTS, 2) and bool(((usage >= 0) & (usage <= MAX_EXACT_INT)).all())
                if not (
                    bounded
                    and 0 < seconds <= MAX_SECONDS
                    and 0 < largest[0] <= MAX_EXACT_INT
                    and 0 <= largest[1] <= MAX_EXACT_INT
                ):
                    raise ValueError("a run is out of its bounds")
                found.runs.append(Run(seconds, largest, usage))
            _read_scores(found, data["scores"])
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"the kept phases cannot be read: {error}") from error
        return found


def _read_scores(found: LearnedPhases, data: Mapping[str, Any]) -> None:
    for rule in RULES:
        for under, held in data[rule][-SCORES_KEPT:]:
            if not (0 <= under <= 1 and 0 <= held <= 1):
                raise ValueError("a score is outside of 0 to 1")
            found.scores[rule].append(Score(float(under), float(held)))

"""A cell of the lab, its input, and its outcome.

Built by `plan`, run by `cell_run`, kept by `journal`. Values only. Invariant: two cells with the same key give the same
figures. The key has everything that can change a figure, including the content of the data and of a user's file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

Task = Literal["run-time", "usage-path", "host-peak", "service-rate"]
TASKS: Final[dict[Task, str]] = {
    "run-time": "How long will this job run? Asked at each submission.",
    "usage-path": "What is the load of each of the next 12 slots of five minutes?",
    "host-peak": "How high is the load in any of the next 12 slots?",
    "service-rate": "How many requests come in each of the next 12 slots?",
}


@dataclass(frozen=True, slots=True)
class LabCell:
    """One predictor on one data set.

    Attributes
    ----------
    data : the name in tables: a file's own name, or of a generator.
    data_sha256 : of the file's content; of a generator, its name.
    settings : as text, the used part of the data.
    predictor : a name of the registry, or of a user's file.
    predictor_sha256 : of the user's file, or of a pretrained model's weights; None for one of ours.
    """

    task: Task
    data: str
    data_sha256: str
    settings: str
    predictor: str
    seed: int
    predictor_sha256: str | None = None

    @property
    def key(self) -> str:
        """Return the sha256 of all parameters, which identifies the cell."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def rank(self) -> tuple[str, str, str, str, int]:
        """Return the rank in a table, which is independent of the order of running."""
        return (self.task, self.data, self.settings, self.predictor, self.seed)


@dataclass(frozen=True, slots=True)
class LabSource:
    """The data of a cell: a file, or a generator's output.

    Attributes
    ----------
    hosts : largest number of series, drawn by the cell's seed; None: all.
    limit : largest number of jobs, or slots, from the beginning; None: all.
    decide : of run times, whether policies are replayed with the forecasts.
    steps : training steps of networks; None: their own number.
    weights : name and folder of pretrained models.
    """

    name: str
    sha256: str
    path: Path | None
    hosts: int | None = None
    limit: int | None = None
    decide: bool = False
    steps: int | None = None
    weights: tuple[tuple[str, Path], ...] = ()


@dataclass(frozen=True, slots=True)
class LabOutcome:
    """The outcome of a cell: figures and losses in blocks, or the reason for their absence.

    Attributes
    ----------
    figures : by name; the first figure of a task orders its table.
    blocks : for each figure that has an interval, the sum and the count of each block of time (a week of jobs, a day of
        slots); intervals and differences of predictors are drawn from them.
    costs : ``fit_seconds``, and ``seconds_per_1000`` forecasts with the learning between them, of processor time.
        Series also have ``forecast_seconds_per_1000`` without new data, and ``bytes_per_series`` that a forecaster
        keeps. They are no results: they differ from run to run.
    """

    cell: LabCell
    count: int
    figures: dict[str, float]
    blocks: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]
    costs: dict[str, float]
    error: str | None


HIGHER_IS_BETTER: Final = frozenset({"accuracy", "log_density", "slack_at_violations", "within_90"})
"""Figures where more is better; of all others less is."""
HORIZON: Final = "_at_"
"""Between a figure of paths and its horizon in slots: ``pinball_90_at_3``."""


def at_horizon(figure: str, slots: int) -> str:
    """Return the name of a figure of paths at one horizon, 1 for the next slot."""
    return f"{figure}{HORIZON}{slots}"


def horizon_of(name: str) -> tuple[str, int] | None:
    """Return figure and slots of a name that `at_horizon` made; None for any other, ``nodes_at_overload`` for one."""
    figure, sign, slots = name.rpartition(HORIZON)
    return (figure, int(slots)) if sign and slots.isdigit() else None

"""The completed jobs of a key (a user, a user's executable, ...) so far, and a snapshot of them at each submission.

First step of every forecaster here. A key's history is one row of numbers; a completion updates the row of its key and
a submission copies it. All the rest (heuristics, Table 4.1, the trees' features) is arithmetic on snapshots. Invariant:
a snapshot holds only jobs that complete before the submission in the event order.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled
from cotide_predictors.run_time.jobs import Ints, JobTable, event_order

DEPTH: Final = 5
"""Runs kept one by one: the maximum ratio of the last five needs that many (Naghshnejad 2019)."""


class Column(IntEnum):
    """Columns of a history; the five last runs and run/request ratios come newest first, nan where there is none."""

    RUN = 0
    RATIO = 5
    LAST_PROCESSORS = 10
    COUNT = 11
    RUN_MEAN = 12
    RUN_SQUARES = 13
    RUN_MAX = 14
    PROCESSORS_MEAN = 15
    PROCESSORS_SQUARES = 16
    PROCESSORS_MAX = 17
    LOG_MEAN = 18
    LOG_SQUARES = 19
    LAST_FINISH = 20
    LAST_REQUESTED = 21
    LAST_SUBMIT = 22


WIDTH: Final = 23
"""Numbers in a history: one for each column and four more behind RUN and RATIO."""


class Histories:
    """Histories of keys, which grow as new keys come."""

    def __init__(self, keys: int = 16) -> None:
        self.rows = _blank(max(keys, 1))

    def walk(
        self, events: Ints, keys: Ints, jobs: JobTable, run_seconds: Floats, finish_seconds: Floats, out: Floats
    ) -> None:
        """Take events in order: write a submission's snapshot to its row of ``out``, learn from a completion.

        Parameters
        ----------
        events : as in `event_order`; may be any piece of it, one event included.
        keys : (n,) each job's key, >= 0.
        run_seconds, finish_seconds : (n,) read for completions only.
        out : (n, WIDTH), written for submissions only.
        """
        if len(keys) and keys.max() >= len(self.rows):
            more = _blank(max(int(keys.max()) + 1, 2 * len(self.rows)))
            more[: len(self.rows)] = self.rows
            self.rows = more
        _walk(
            events,
            keys,
            jobs.submit_seconds,
            jobs.requested_seconds,
            jobs.processors,
            run_seconds,
            finish_seconds,
            self.rows,
            out,
        )


def snapshots(keys: Ints, jobs: JobTable, run_seconds: Floats, finish_seconds: Floats) -> Floats:
    """Return (n, WIDTH) histories of each job's key at its submission."""
    out = np.empty((len(jobs), WIDTH))
    histories = Histories(int(keys.max(initial=0)) + 1)
    histories.walk(event_order(jobs.submit_seconds, finish_seconds), keys, jobs, run_seconds, finish_seconds, out)
    return out


def deviation(rows: Floats, squares: Column) -> Floats:
    """Return (n,) population standard deviations, nan without a run."""
    count = rows[:, Column.COUNT]
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.sqrt(np.where(count > 0, rows[:, squares] / count, np.nan))
    return found


def _blank(keys: int) -> Floats:
    rows = np.zeros((keys, WIDTH))
    rows[:, : 2 * DEPTH] = np.nan
    for column in (Column.LAST_FINISH, Column.LAST_REQUESTED, Column.LAST_SUBMIT):
        rows[:, column] = np.nan
    return rows


@compiled
def _walk(
    events: Ints,
    keys: Ints,
    submit: Floats,
    requested: Floats,
    processors: Floats,
    run: Floats,
    finish: Floats,
    rows: Floats,
    out: Floats,
) -> None:
    for event in events:
        if event >= 0:
            row = rows[keys[event]]
            out[event] = row
            row[22] = submit[event]
        else:
            job = ~event
            row = rows[keys[job]]
            for index in range(4, 0, -1):
                row[index] = row[index - 1]
                row[5 + index] = row[5 + index - 1]
            length = run[job]
            row[0] = length
            row[5] = length / requested[job] if requested[job] > 0 else np.nan
            row[10] = processors[job]
            row[11] += 1.0
            row[14] = max(row[14], length)
            row[17] = max(row[17], processors[job])
            row[20] = finish[job]
            row[21] = requested[job]
            _add(row, 12, length)
            _add(row, 15, processors[job])
            _add(row, 18, np.log(length))


@compiled
def _add(row: Floats, index: int, value: float) -> None:
    """Welford's running mean and sum of squared deviations at ``index`` and ``index + 1``; the count is up to date."""
    away = value - row[index]
    row[index] += away / row[11]
    row[index + 1] += away * (value - row[index])

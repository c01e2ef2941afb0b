"""From the rows of an SWF log to jobs that can be replayed: each rule an option, each row it touches counted.

Called by `cotide simulate` and the benchmarks. Step two of the flow: values to jobs. Invariant: ``rows`` = jobs + the
sum of the rules that drop; a rule that changes a job is counted too, with the line of its first case.

The defaults are the filter that gives the published figures of the EASY scheduler (docs/research/traces.md): a row
whose run time or processors are unknown or zero is no job. The processors are those requested, else those allocated. A
run ends at the request at the latest, as on a system that kills jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from cotide_core.errors import InputError
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf import Field, SwfLog
from cotide_sim.traces.jobs.swf_exclusion import Exclusion

Mask = npt.NDArray[np.bool_]
TIME_MAX: Final = float(1 << 40)
"""Seconds beyond which a time is taken for a fault (34,865 years; chosen so that sums stay exact)."""

COMPLETED: Final = 1.0
"""Status of a job that ran to its end (Standard Workload Format, field 11)."""
PARTIAL: Final = (2.0, 3.0, 4.0)
"""Statuses of one of the executions of a job between checkpoints or swaps. The format sums them up in a line of status
0 or 1 with the same job number, and means that line alone for studies (the same)."""

MAX_PROCESSORS: Final = (1 << 31) - 1
"""Of one machine; chosen: a hundred times the largest trace here in thousandths of a machine. The processor seconds of
a job stay far below the range of int64."""


@dataclass(frozen=True, slots=True)
class Cleaning:
    """How rows become jobs.

    Attributes
    ----------
    processors : the machine's size; None takes the header's.
    demand : ``requested`` or ``allocated`` processors, each falling back to the other; ``larger``: the larger of both.
    overrun : a run time above the request: ``cut`` the run at the request, ``keep`` both as they are, or ``raise`` the
    request to the run, which gives policies the run time of exactly these jobs.
    no_request : a job without a requested time is taken to ask for the ``longest`` run time of the log, as if for what
        a system allows at all; ``run`` takes its own run time, which gives policies unknown facts.
    not_run : a run time of 0 or below: ``drop`` the row, or count it as ``one-second``. ``completed`` counts the 0 of a
        completed job (status 1) as one second, since the format rounds a run of less than half a second to 0, and drops
        the others.
    negative : a run time below 0 that is not the format's -1, unknown: as under ``not_run`` (``drop``), or ``fail``.
    too_large : a job larger than the machine: ``drop`` or ``fail``.
    duplicates : a job number seen before: ``drop`` or ``fail``.
    unsorted : a submit time below the one before: ``sort`` or ``fail``.
    exclusions : the archive's cleaning filters; rows that match one are dropped.
    """

    processors: int | None = None
    demand: Literal["requested", "allocated", "larger"] = "requested"
    overrun: Literal["cut", "keep", "raise"] = "cut"
    no_request: Literal["longest", "run"] = "longest"
    not_run: Literal["drop", "completed", "one-second"] = "drop"
    negative: Literal["drop", "fail"] = "drop"
    too_large: Literal["drop", "fail"] = "drop"
    duplicates: Literal["drop", "fail"] = "drop"
    unsorted: Literal["sort", "fail"] = "sort"
    exclusions: tuple[Exclusion, ...] = ()

    def of_a_table(self) -> Cleaning:
        """Return the rules for a format other than the Standard Workload Format, which alone writes 0 for short runs.

        Rows of a table are in no order that it promises.
        """
        return replace(self, unsorted="sort", not_run="drop" if self.not_run == "completed" else self.not_run)

    def describe(self) -> str:
        """Return the filter in one line, for tables and reports."""
        parts = [
            f"demand {self.demand}",
            "run <= 0 drop (0 of a completed job: 1 s)" if self.not_run == "completed" else f"run <= 0 {self.not_run}",
            f"run > request {self.overrun}",
            *(["no request: the run time"] if self.no_request == "run" else []),
            f"larger than the machine {self.too_large}",
            *(f"without {exclusion.text}" for exclusion in self.exclusions),
        ]
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class RuleCount:
    """How many rows one rule touched, and the line of the first of them."""

    rule: str
    rows: int
    first_line: int
    dropped: bool


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """What became of the rows of a log.

    Attributes
    ----------
    rows, jobs : of the file, and those that are left.
    waits : (jobs,) seconds that the jobs waited when they were recorded, negative where that is not known.
    rows_of_jobs : (jobs,) the row of the log's table that each was made of.
    """

    file: str
    rows: int
    jobs: int
    rules: tuple[RuleCount, ...]
    waits: npt.NDArray[np.int64]
    rows_of_jobs: npt.NDArray[np.intp]

    def sentences(self) -> list[str]:
        """Return one line for each rule that touched a row."""
        return [
            f"{self.file}:{rule.first_line}: {rule.rows:,} {'row' if rule.rows == 1 else 'rows'} "
            f"{'dropped' if rule.dropped else 'changed'}: {rule.rule} (first case)"
            for rule in self.rules
        ]


def clean(log: SwfLog, cleaning: Cleaning | None = None) -> tuple[BatchJobs, CleaningReport]:
    """Return the jobs of a log and what was done to get them.

    Raises
    ------
    InputError
        When the machine's size is unknown or beyond `MAX_PROCESSORS`, no job is left, or a rule set to ``fail`` meets
        a case.
    """
    how = cleaning or Cleaning()
    processors = how.processors or log.processors
    if processors is None:
        raise InputError(
            "the header names no machine size (MaxProcs or MaxNodes); give one with --processors", file=log.file
        )
    if processors > MAX_PROCESSORS:
        raise InputError(f"a machine of {processors:,} processors is beyond {MAX_PROCESSORS:,}", file=log.file)
    return _Rules(log, how, processors).jobs()


class _Rules:
    """The rules one after another, over the rows that are still there."""

    def __init__(self, log: SwfLog, how: Cleaning, processors: int) -> None:
        self.log, self.how, self.processors = log, how, processors
        self.kept: Mask = np.ones(len(log.table), dtype=np.bool_)
        self.counts: list[RuleCount] = []

    def column(self, field: Field) -> npt.NDArray[np.float64]:
        return self.log.table[:, field]

    def drop(self, cases: Mask, rule: str, *, fail: bool = False) -> None:
        cases = cases & self.kept
        self.count(cases, rule, dropped=True, fail=fail)
        self.kept &= ~cases

    def count(self, cases: Mask, rule: str, *, dropped: bool = False, fail: bool = False) -> None:
        cases = cases & self.kept
        found = int(np.count_nonzero(cases))
        if not found:
            return
        line = int(self.log.lines[int(np.argmax(cases))])
        if fail:
            raise InputError(rule, file=self.log.file, line=line)
        self.counts.append(RuleCount(rule, found, line, dropped))

    def jobs(self) -> tuple[BatchJobs, CleaningReport]:
        for exclusion in self.how.exclusions:
            self.drop(exclusion.matches(self.log.table), f"matches {exclusion.text}")
        self.drop(np.isin(self.column(Field.STATUS), PARTIAL), "partial executions (status 2, 3, 4)")
        submit, numbers = self.column(Field.SUBMIT), self.column(Field.JOB)
        self.drop((submit < 0) | (submit > TIME_MAX), "no usable submit time")
        self.drop(_seen_before(numbers, self.kept), "job number seen before", fail=self.how.duplicates == "fail")
        run, request = self._times()
        demand = self._demand()
        order = self._order(submit)
        if not len(order):
            raise InputError("no job is left after cleaning: " + self._why(), file=self.log.file)
        jobs = BatchJobs(
            name=self.log.file,
            processors=self.processors,
            numbers=_whole(numbers[order]),
            submit=_whole(submit[order]),
            run=_whole(run[order]),
            demand=_whole(demand[order]),
            request=_whole(request[order]),
            user=_whole(self.column(Field.USER)[order]),
            group=_whole(self.column(Field.GROUP)[order]),
        )
        waits = _whole(self.column(Field.WAIT)[order])
        report = CleaningReport(self.log.file, len(self.log.table), len(jobs), tuple(self.counts), waits, order)
        return jobs, report

    def _times(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        run, request = np.ceil(self.column(Field.RUN)), np.ceil(self.column(Field.LIMIT))
        if self.how.negative == "fail":
            self.count((run < 0) & (run != -1), "run time negative", fail=True)
        if self.how.not_run == "completed":
            short = (run == 0) & (self.column(Field.STATUS) == COMPLETED)
            self.count(short, "run time zero of a completed job: one second instead")
            run = np.where(short, 1.0, run)
        if self.how.not_run != "one-second":
            self.drop(run <= 0, "run time unknown, zero or negative")
        else:
            self.count(run <= 0, "run time unknown, zero or negative: one second instead")
            run = np.maximum(run, 1.0)
        self.drop(np.maximum(run, request) > TIME_MAX, "time out of range")
        request = self._given(run, request)
        over = run > request
        if self.how.overrun == "keep":
            self.count(over, "ran longer than requested: kept so")
            return run, request
        if self.how.overrun == "raise":
            self.count(over, "ran longer than requested: request raised to the run time")
            return run, np.maximum(run, request)
        self.count(over, "ran longer than requested: run time cut at the request")
        return np.minimum(run, request), request

    def _given(self, run: npt.NDArray[np.float64], request: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Fill in requests that were not made."""
        without = request <= 0
        if self.how.no_request == "run":
            self.count(without, "no requested time: the run time instead")
            return np.where(without, run, request)
        # One number for all jobs, so that it distinguishes none; not the longest request, which may be a typing error.
        longest = run[self.kept].max() if self.kept.any() else 1.0
        self.count(without, f"no requested time: the longest run of the log instead, {longest:,.0f} s")
        return np.where(without, longest, request)

    def _demand(self) -> npt.NDArray[np.float64]:
        allocated, requested = self.column(Field.ALLOCATED), self.column(Field.REQUESTED)
        if self.how.demand == "larger":
            demand = np.maximum(allocated, requested)
        else:
            first, second = (allocated, requested) if self.how.demand == "allocated" else (requested, allocated)
            other = (first <= 0) & (second > 0)
            self.count(other, f"no {self.how.demand} processors: the other column instead")
            demand = np.where(first > 0, first, second)
        demand = np.ceil(demand)
        self.drop(demand <= 0, "number of processors unknown")
        rule = f"larger than the machine of {self.processors} processors"
        self.drop(demand > self.processors, rule, fail=self.how.too_large == "fail")
        return demand

    def _order(self, submit: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        indices = np.flatnonzero(self.kept)
        times = submit[indices]
        falls = np.zeros(len(submit), dtype=np.bool_)
        falls[indices[1:]] = times[1:] < times[:-1]
        fail = self.how.unsorted == "fail"
        self.count(falls, "submitted before the row above" + ("" if fail else ": rows sorted"), fail=fail)
        return indices[np.argsort(times, kind="stable")]

    def _why(self) -> str:
        return "; ".join(f"{count.rows} {count.rule}" for count in self.counts)


def _seen_before(numbers: npt.NDArray[np.float64], kept: Mask) -> Mask:
    seen = np.zeros(len(numbers), dtype=np.bool_)
    indices = np.flatnonzero(kept)
    _, first = np.unique(numbers[indices], return_index=True)
    again = np.ones(len(indices), dtype=np.bool_)
    again[first] = False
    seen[indices[again]] = True
    return seen


def _whole(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return seconds or counts as integers, fractions rounded up: a job is never made shorter than it was."""
    return np.ceil(values).astype(np.int64)

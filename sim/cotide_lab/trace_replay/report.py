"""The HTML report of a replay: one file that needs no other and no network.

Called by `cotide simulate --report`. Last step of the flow. Invariant: all text from outside is escaped; the same
schedules, made by the same command on the same date, give the same bytes. Table and charts need no script; the zoomable
schedule (`schedule_view`) does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_core.units import counted
from cotide_lab.trace_replay.metrics import (
    NO_INTERVAL,
    WEEK_SECONDS,
    Figure,
    bounded_slowdown,
    use_by_week,
    waiting_by_time,
)
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import Schedule
from cotide_lab.trace_replay.schedule_view import STYLE, view
from cotide_sim.pages.bar_chart import BETTER, WORSE, Bar, bar_chart
from cotide_sim.pages.line_chart import Axis, Series, line_chart
from cotide_sim.pages.page import Made, chart, charts, page, table
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

BASELINE: Final = "easy"
"""What other policies are compared with where it was replayed, else with the first; EASY is what most centres run."""
QUEUE_STRETCHES: Final = 300
"""Chosen: about a stretch for each pixel of a phone."""
_UTILISATION: Final = Axis("utilisation", 0.0, 1.0)
_COLUMNS: Final = (
    ("wait_seconds_mean", "wait, s", ",.0f"),
    ("bounded_slowdown_mean", "bounded slowdown", ",.2f"),
    ("stretch_mean", "stretch", ",.2f"),
    ("response_seconds_mean", "response, s", ",.0f"),
    ("utilisation", "utilisation", ".1%"),
)


def write_report(
    path: Path,
    jobs: BatchJobs,
    described: str,
    schedules: Sequence[Schedule],
    figures: Mapping[str, Mapping[str, Figure]],
    made: Made,
    summaries: Mapping[str, str] | None = None,
) -> None:
    """Write the report.

    Parameters
    ----------
    described : where the jobs come from and what was filtered, in one line.
    figures : by policy, then by name.
    made : the text at the foot of the page.
    summaries : what each policy does, in words; None for the policies that are known by name.

    Raises
    ------
    InputError
        When the file can't be written.
    """
    words = {name: policy.summary for name, policy in POLICIES.items()} | dict(summaries or {})
    title = f"{Path(jobs.name).name} under {counted(len(schedules), 'policy', 'policies')}"
    text = page(title, _sections(jobs, described, schedules, figures, words), made, style=STYLE)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(path)) from error


def _sections(
    jobs: BatchJobs,
    described: str,
    schedules: Sequence[Schedule],
    figures: Mapping[str, Mapping[str, Figure]],
    summaries: Mapping[str, str],
) -> list[str]:
    waits = {s.policy: np.sort((s.start - jobs.submit).astype(np.float64)) for s in schedules}
    slowdowns = {s.policy: np.sort(bounded_slowdown(jobs, s.start)) for s in schedules}
    days = round(float(jobs.submit[-1] - jobs.submit[0]) / 86_400)
    return [
        f"<p>{counted(len(jobs), 'job')} in {counted(days, 'day')} on {counted(jobs.processors, 'processor')}; run "
        f"times as {escape(schedules[0].runtime)}; {escape(described)}.</p>",
        _table(schedules, figures, summaries),
        f"<p>{_intervals(figures)}</p>",
        _against_baseline(figures),
        "<h2>How long, and how many</h2>",
        charts(
            chart("Waiting", "Share of jobs that waited no longer than so many seconds.", _shares(waits, "wait, s")),
            chart(
                "Bounded slowdown",
                "Share of jobs slowed down no more than so many times (threshold 10 s).",
                _shares(slowdowns, "bounded slowdown"),
            ),
            chart(
                "Queue",
                "Jobs that waited, the mean of each stretch of time; the bottom is one or none.",
                _queue(jobs, schedules),
            ),
            chart("Utilisation", "Share of the processors in use, week by week.", _weeks(jobs, schedules)),
        ),
        "<h2>Schedule</h2><p>Jobs by time and processors, and below them the share of processors in use under each "
        "policy; it opens on the policy of the least mean bounded slowdown. Times count from the first submission. The "
        "wheel zooms, dragging moves, a job's figures appear when it is pointed at. Which of equal processors a job "
        "held is chosen for the picture; no policy decides it.</p>",
        view(jobs, schedules, figures),
    ]


def _intervals(figures: Mapping[str, Mapping[str, Figure]]) -> str:
    if any(figure.low is not None for found in figures.values() for figure in found.values()):
        return "Means; below each its 95 % interval when weeks are drawn anew, the same for every policy."
    return NO_INTERVAL


def _table(
    schedules: Sequence[Schedule], figures: Mapping[str, Mapping[str, Figure]], summaries: Mapping[str, str]
) -> str:
    rows = []
    for schedule in schedules:
        found = figures[schedule.policy]
        summary = escape(summaries.get(schedule.policy, ""))
        cells = [_cell(found[name], form) for name, _, form in _COLUMNS]
        rows.append([f"{escape(schedule.policy)}<small>{summary}</small>", *cells])
    return table(["policy", *(title for _, title, _ in _COLUMNS)], rows)


def _cell(figure: Figure, form: str) -> str:
    interval = "" if figure.low is None or figure.high is None else f"{figure.low:{form}} to {figure.high:{form}}"
    return f"{figure.value:{form}}<small>{interval}</small>"


def _against_baseline(figures: Mapping[str, Mapping[str, Figure]]) -> str:
    """Draw how much less or more than the baseline each other policy makes jobs wait; empty for one policy."""
    if len(figures) == 1:
        return ""
    baseline = BASELINE if BASELINE in figures else next(iter(figures))
    drawn = []
    for name, title in (("wait_seconds_mean", "Mean wait"), ("bounded_slowdown_mean", "Mean bounded slowdown")):
        base = figures[baseline][name].value
        bars = [
            Bar(policy, change, _change(change), WORSE if change > 0 else BETTER)
            for policy, found in figures.items()
            if policy != baseline
            for change in [found[name].value / base - 1 if base > 0 else 0.0]
        ]
        words = f"Less (to the left) is better; {baseline} is the line."
        drawn.append(chart(title, words, bar_chart(bars, f"{title} against {baseline}", most=1.0)))
    return f"<h2>Against {escape(baseline)}</h2>{charts(*drawn)}"


def _change(share: float) -> str:
    """Return a change in per cent; a small one with a decimal, since "-0%" has no meaning."""
    return f"{share:+.1%}" if 0.0 < abs(share) < 0.01 else f"{share:+,.0%}" if share else "0%"


def _shares(values: Mapping[str, Floats], title: str) -> str:
    high = max(10.0, *(float(found[-1]) for found in values.values()))
    series = [
        Series(name, found, np.arange(1, len(found) + 1, dtype=np.float64) / len(found))
        for name, found in values.items()
    ]
    return line_chart(series, Axis(title, 1.0, high, logarithmic=True), Axis("share of jobs", 0.0, 1.0))


def _queue(jobs: BatchJobs, schedules: Sequence[Schedule]) -> str:
    begin, end = int(jobs.submit[0]), max(int(schedule.start.max()) for schedule in schedules)
    edges = np.unique(np.linspace(begin, max(end, begin + 1), QUEUE_STRETCHES + 1).astype(np.int64))
    days = (edges[:-1] - begin) / 86_400
    series = [Series(schedule.policy, days, waiting_by_time(jobs, schedule.start, edges)) for schedule in schedules]
    most = max(10.0, *(float(line.y.max()) for line in series))
    return line_chart(
        series, Axis("day", 0.0, float(max(days[-1], 1 / 24))), Axis("jobs waiting", 1.0, most, logarithmic=True)
    )


def _weeks(jobs: BatchJobs, schedules: Sequence[Schedule]) -> str:
    series = []
    for schedule in schedules:
        edges, used = use_by_week(jobs, schedule.start)
        share = used / (np.diff(edges) * float(jobs.processors))
        together = max(1, int(edges[1] - edges[0]) // WEEK_SECONDS)
        weeks = np.arange(len(share) + 1, dtype=np.float64) * together
        series.append(Series(schedule.policy, np.repeat(weeks, 2)[1:-1], np.repeat(share, 2)))
    last = max(float(line.x[-1]) for line in series)
    return line_chart(series, Axis("weeks since the first submission", 0.0, last, whole=True), _UTILISATION)

"""The HTML report of a replay: one file that needs no other and no network.

Called by `cotide simulate --report`. Last step of the flow. Invariant: all text from outside is escaped; the same
schedules give the same bytes. Table and charts need no script; the zoomable schedule (`schedule_view`) does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_sim.trace_replay.metrics import Figure, bounded_slowdown, use_by_week
from cotide_sim.trace_replay.policies import POLICIES
from cotide_sim.trace_replay.runner import Schedule
from cotide_sim.trace_replay.schedule_view import STYLE, view
from cotide_sim.trace_replay.svg_charts import Axis, Series, line_chart
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.3rem .6rem;border-bottom:1px solid #8884;vertical-align:top}
th:first-child,td:first-child{text-align:left}
td small{display:block;opacity:.7}
svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor}
svg polyline{fill:none;stroke-width:1.6}svg .grid{stroke:#8883;fill:none}
.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem}
.legend i{display:inline-block;width:1em;height:.3em;margin-right:.4em;vertical-align:middle}
"""

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
    summaries: Mapping[str, str] | None = None,
) -> None:
    """Write the report.

    Parameters
    ----------
    described : the filter, in one line.
    figures : by policy, then by name.
    summaries : what each policy does, in words; None for the policies that are known by name.

    Raises
    ------
    InputError
        When the file can't be written.
    """
    words = {name: policy.summary for name, policy in POLICIES.items()} | dict(summaries or {})
    try:
        path.write_text(_page(jobs, described, schedules, figures, words), encoding="utf-8")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(path)) from error


def _page(
    jobs: BatchJobs,
    described: str,
    schedules: Sequence[Schedule],
    figures: Mapping[str, Mapping[str, Figure]],
    summaries: Mapping[str, str],
) -> str:
    waits = {s.policy: np.sort((s.start - jobs.submit).astype(np.float64)) for s in schedules}
    slowdowns = {s.policy: np.sort(bounded_slowdown(jobs, s.start)) for s in schedules}
    days = float(jobs.submit[-1] - jobs.submit[0]) / 86_400
    title = escape(Path(jobs.name).name)
    sections = [
        f"<h1>{title} under {len(schedules)} policies</h1>",
        f"<p>{len(jobs):,} jobs in {days:,.0f} days on {jobs.processors:,} processors; run times as "
        f"{escape(schedules[0].runtime)}. Filter: {escape(described)}.</p>",
        _table(schedules, figures, summaries),
        "<p>Means; below each its 95 % interval when weeks are drawn anew, the same for every policy.</p>",
        "<h2>Waiting</h2><p>Share of jobs that waited no longer than so many seconds.</p>",
        _shares(waits, "wait, s", 1.0),
        "<h2>Bounded slowdown</h2><p>Share of jobs slowed down no more than so many times (threshold 10 s).</p>",
        _shares(slowdowns, "bounded slowdown", 1.0),
        "<h2>Utilisation, week by week</h2>",
        _weeks(jobs, schedules),
        "<h2>Schedule</h2><p>Jobs by time and processors, and below them the share of processors in use under each "
        "policy. The wheel zooms, dragging moves, a job's figures appear when it is pointed at. Which of equal "
        "processors a job held is chosen for the picture; no policy decides it.</p>",
        view(jobs, schedules, figures),
    ]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}{STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(sections) + "\n</body></html>\n"
    )


def _table(
    schedules: Sequence[Schedule], figures: Mapping[str, Mapping[str, Figure]], summaries: Mapping[str, str]
) -> str:
    heads = "".join(f"<th>{escape(title)}</th>" for _, title, _ in _COLUMNS)
    rows = []
    for schedule in schedules:
        found = figures[schedule.policy]
        cells = "".join(f"<td>{_cell(found[name], form)}</td>" for name, _, form in _COLUMNS)
        summary = escape(summaries.get(schedule.policy, ""))
        rows.append(f"<tr><td>{escape(schedule.policy)}<small>{summary}</small></td>{cells}</tr>")
    return f"<table><thead><tr><th>policy</th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(figure: Figure, form: str) -> str:
    interval = "" if figure.low is None or figure.high is None else f"{figure.low:{form}} to {figure.high:{form}}"
    return f"{figure.value:{form}}<small>{interval}</small>"


def _shares(values: Mapping[str, Floats], title: str, low: float) -> str:
    high = max(10.0, *(float(found[-1]) for found in values.values()))
    series = [
        Series(name, found, np.arange(1, len(found) + 1, dtype=np.float64) / len(found))
        for name, found in values.items()
    ]
    return line_chart(series, Axis(title, low, high, logarithmic=True), Axis("share of jobs", 0.0, 1.0))


def _weeks(jobs: BatchJobs, schedules: Sequence[Schedule]) -> str:
    series = []
    for schedule in schedules:
        edges, used = use_by_week(jobs, schedule.start)
        share = used / (np.diff(edges) * float(jobs.processors))
        series.append(Series(schedule.policy, np.arange(len(share), dtype=np.float64), share))
    last = max(len(line.x) for line in series) - 1
    return line_chart(series, Axis("week", 0.0, float(max(1, last))), Axis("utilisation", 0.0, 1.0))

"""The demo's page: the verdict, every policy's figures, and how each run went, in one HTML file.

Called by `demo_command`, last step of the demo. Pure except for the written file. Invariant: the page shows the same as
the terminal; without a verdict, it begins with that fact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.policies.catalogue import Runner, entry_of
from cotide_core.units import format_seconds
from cotide_sim.demo.facts import Moment
from cotide_sim.demo.summary import PolicyOutcome
from cotide_sim.demo.verdict import Verdict, late_share
from cotide_sim.pages.bar_chart import PLAIN, Bar, bar_chart
from cotide_sim.pages.line_chart import Axis, Series, line_chart
from cotide_sim.pages.page import Made, chart, charts, page, table

TITLE: Final = "Cotide's demo: one cluster, the same arrivals, policy by policy"
_HEADS: Final = (
    "policy", "pods bound", "jobs done", "waiting in all", "waiting, mean", "over limit", "cpu in use",
    "overload slots", "evicted", "services that never ran", "online pods waiting", "late",
)  # fmt: skip


def write_page(
    path: Path, outcomes: Mapping[str, PolicyOutcome], verdict: Verdict, made: Made, *, described: str
) -> None:
    """Write the page.

    Parameters
    ----------
    described : nodes, seed, scenario and clock, in a sentence.

    Raises
    ------
    InputError
        When the file can't be written.
    """
    try:
        path.write_text(page(TITLE, _sections(outcomes, verdict, described), made), encoding="utf-8")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(path)) from error


def _sections(outcomes: Mapping[str, PolicyOutcome], verdict: Verdict, described: str) -> list[str]:
    missed = verdict.missed or ()
    faults = f"<p>Objectives of the demo that were missed: {escape('; '.join(missed))}.</p>" if missed else ""
    return [
        f'<p class="lead">{escape(verdict.sentence)}</p>',
        f"<p>{escape(described)}</p>{faults}",
        charts(
            chart(
                "Waiting",
                "Of batch and gratis pods, summed, in simulated time; an order under which services break their limits "
                "waits little.",
                _bars(
                    outcomes,
                    lambda one: one.figures["waiting_seconds_total"],
                    lambda one: format_seconds(one.figures["waiting_seconds_total"]),
                    "Total waiting by policy",
                ),
            ),
            chart(
                "Over the limit",
                "Share of time that services spent over their latency limit, or without a ready pod.",
                _bars(
                    outcomes,
                    lambda one: one.figures["qos_violation_ratio"],
                    lambda one: f"{one.figures['qos_violation_ratio']:.1%}",
                    "Share of time over the latency limit by policy",
                ),
            ),
        ),
        "<h2>Figures</h2>",
        table(_HEADS, [_row(name, outcome, verdict.winner) for name, outcome in outcomes.items()]),
        "<p>Late: the machine's own share of the waiting, of jobs that it made late and of pods that it started late. "
        "An overload slot is a stretch of 25 simulated seconds of a node with higher demand than capacity.</p>",
        "<h2>How it went</h2>",
        charts(
            chart("Queue", "Batch and gratis pods that waited for a node.", _course(outcomes, "pods", _queued)),
            chart("Limits", "Share of services over their limit at the moment.", _course(outcomes, "share", _over)),
            chart("Cpu", "Share of all cores in use.", _course(outcomes, "share", _cpu)),
        ),
        "<h2>Services</h2>",
        _services(outcomes),
    ]


def _bars(
    outcomes: Mapping[str, PolicyOutcome],
    value: Callable[[PolicyOutcome], float],
    figure: Callable[[PolicyOutcome], str],
    what: str,
) -> str:
    return bar_chart([Bar(name, value(outcome), figure(outcome), PLAIN) for name, outcome in outcomes.items()], what)


def _row(name: str, outcome: PolicyOutcome, winner: str | None) -> list[str]:
    figures = outcome.figures
    shown = f"<strong>{escape(name)}</strong>" if name == winner else escape(name)
    return [
        f"{shown}<small>{escape(entry_of(name, Runner.LIVE).summary)}</small>",
        f"{figures['pods_bound']:,}",
        f"{figures['jobs_finished']:,}",
        format_seconds(figures["waiting_seconds_total"]),
        f"{figures['waiting_seconds_mean']:.1f} s",
        f"{figures['qos_violation_ratio']:.2%}",
        f"{figures['cpu_utilisation']:.1%}",
        f"{figures['overload_slots']:,}",
        f"{figures['evictions']:,}",
        escape(", ".join(figures["services_never_ran"])) or "none",
        f"{figures['online_pods_waiting']:,}",
        f"{late_share(outcome.late_seconds, figures['waiting_seconds_total']):.1%}",
    ]


def _queued(moment: Moment) -> float:
    return float(moment.queued)


def _over(moment: Moment) -> float:
    return moment.over_limit_share


def _cpu(moment: Moment) -> float:
    return moment.cpu_share


def _course(outcomes: Mapping[str, PolicyOutcome], unit: str, value: Callable[[Moment], float]) -> str:
    series = [
        Series(
            name,
            np.array([moment.elapsed_seconds / 60 for moment in outcome.history]),
            np.array([value(moment) for moment in outcome.history]),
        )
        for name, outcome in outcomes.items()
        if outcome.history
    ]
    if not series:
        return "<p>nothing was seen</p>"
    longest = max(float(line.x[-1]) for line in series)
    most = 1.0 if unit == "share" else max(1.0, *(float(line.y.max()) for line in series))
    return line_chart(series, Axis("simulated minutes", 0.0, longest or 1.0), Axis(unit, 0.0, most))


def _services(outcomes: Mapping[str, PolicyOutcome]) -> str:
    services = sorted({name for outcome in outcomes.values() for name in outcome.violation_ratio_by_service})
    if not services:
        return "<p>There was none.</p>"
    rows = []
    for service in services:
        ratios = (outcome.violation_ratio_by_service.get(service) for outcome in outcomes.values())
        rows.append([escape(service), *("-" if ratio is None else f"{ratio:.1%}" for ratio in ratios)])
    return "<p>Share of time over the limit.</p>" + table(["service", *outcomes], rows)

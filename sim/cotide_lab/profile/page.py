"""The page of a campaign: p95 against rate by mix, predicted against measured, the jobs that fit, the cost of the
limit.

Called by `profile_command`, last step of a campaign. Pure except for the written file. Invariant: cells that were cut
short, skipped or stayed noisy are named; without a model, the page gives the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.units import counted, format_seconds
from cotide_lab.predictors.profiling.design import Mix, Standing
from cotide_lab.predictors.profiling.findings import CellFinding, mixes_in
from cotide_lab.profile.journal import Journal
from cotide_lab.profile.results import THRESHOLD, Results
from cotide_sim.pages.line_chart import Axis, Series, line_chart
from cotide_sim.pages.page import Made, chart, charts, page, table

MIXES_OF_A_CHART: Final = 7
"""Lines that a reader can distinguish, in addition to the service alone and the limit (chosen)."""
MUCH_LAG: Final = 0.2
"""A generator later than this share of the p95 is named (chosen)."""
MOST_STAMPED: Final = 0.99
"""A window in which the kernel timed a smaller share of the answers is named (chosen: a p95 hangs on five)."""
ODD: Final = 1.5
"""A service that is slower alone than next to a job by this factor was not alone (chosen: beyond a window's noise)."""


def write_page(path: Path, journal: Journal, results: Results, made: Made) -> None:
    """Write the page.

    Raises
    ------
    InputError
        When the file can't be written.
    """
    try:
        path.write_text(page("A service next to batch work", _sections(journal, results), made), encoding="utf-8")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(path)) from error


def lead(journal: Journal, results: Results) -> str:
    """Return the findings, in two sentences."""
    limit = journal.plan.limit_milliseconds
    own = next((cost for cost in results.costs if cost.limit_milliseconds == limit), None)
    rates = sorted({cell.cell.rate for cell in results.cells})
    beside = [fit for fit in results.fits if fit.measured]
    if own is None or own.rate_alone is None:
        return f"Not even alone is the p95 within {limit:g} ms at any measured rate."
    highest = max((fit.rate for fit in beside), default=None)
    words = "next to no measured job at any rate" if highest is None else f"next to batch jobs up to {highest:,.0f}/s"
    whole = "the highest that was measured" if own.rate_alone == rates[-1] else "not above"
    return f"Alone the service keeps its p95 within {limit:g} ms up to {own.rate_alone:,.0f}/s ({whole}); {words}."


def _sections(journal: Journal, results: Results) -> list[str]:
    plan = journal.plan
    measured = (
        f"{counted(len(journal.windows), 'window')} of {plan.window_seconds:g} s, "
        f"{counted(len(results.cells), 'cell')} of rate and mix, {plan.source}. A cell is known when the 95 % interval "
        f"of its p95 ends within {plan.rule.width:.0%} of the middle (Student's t on the logs of its windows), after "
        f"{plan.rule.least} to {plan.rule.most} windows."
    )
    return [
        f'<p class="lead">{escape(lead(journal, results))}</p>',
        f"<p>{escape(measured)}</p>",
        *(f"<p>{escape(line)}</p>" for line in _notes(journal, results)),
        charts(*_latency_charts(results, plan.limit_milliseconds), _predicted_chart(results)),
        "<h2>How much batch fits</h2>",
        "<p>Most jobs of one type at once: as measured (the interval's upper end is within the limit), and by the "
        f"model (probability at most {THRESHOLD:g}). 0: only the service alone; -: not even that.</p>",
        _fits(results),
        "<h2>What the limit costs</h2>",
        "<p>Cores of batch work in the mean over the measured rates, with the most that holds the limit at each.</p>",
        table(
            ["p95 limit", "batch cores", "highest rate alone"],
            [
                [
                    f"{cost.limit_milliseconds:g} ms" if math.isfinite(cost.limit_milliseconds) else "none",
                    f"{cost.batch_cores:.2f}",
                    "-" if cost.rate_alone is None else f"{cost.rate_alone:,.0f}/s",
                ]
                for cost in results.costs
            ],
        ),
        "<h2>Cells</h2>",
        _cells(results),
    ]


def _notes(journal: Journal, results: Results) -> list[str]:
    """Return notes for a reader on the reliability of the figures."""
    found = [f"Ended early: {results.note}."] if results.note else []
    found += [f"Warning: {warning}." for warning in results.warnings]
    for standing, words in (
        (Standing.SKIPPED, "skipped, because something easier was above the harm"),
        (Standing.HARMFUL, "above the harm, and not repeated"),
        (Standing.NOISY, "with a wide interval after as many windows as were allowed"),
        (Standing.OPEN, "not measured to the end"),
    ):
        count = sum(one is standing for one in results.where.values())
        found += [f"{counted(count, 'cell')} {words}."] if count else []
    alone = {cell.cell.rate: cell.p95.middle for cell in results.cells if not cell.cell.mix}
    odd = {
        cell.cell.rate
        for cell in results.cells
        if cell.cell.mix and alone.get(cell.cell.rate, 0) > ODD * cell.p95.middle
    }
    if odd:
        found.append(
            f"At {counted(len(odd), 'rate')} the service alone was slower than next to a job: something else ran on "
            "its cores, and the limits include that, too. Measure again on a quiet machine."
        )
    late = [window for window in journal.windows if window.lag_milliseconds > MUCH_LAG * window.p95_milliseconds]
    if late:
        worst = max(window.lag_milliseconds for window in late)
        found.append(
            f"In {counted(len(late), 'window')} the load generator itself was late (up to {worst:.2f} ms in the mean), "
            "which counts as latency: give it a core of its own."
        )
    unstamped = sum(window.kernel_share < MOST_STAMPED for window in journal.windows)
    if unstamped:
        found.append(
            f"In {counted(unstamped, 'window')} the kernel did not stamp each answer: the time that the generator "
            "took to read it counts as latency."
        )
    if results.refused:
        found.append(f"There is no model: {results.refused}.")
    elif results.model_metrics:
        brier, constant = results.model_metrics.get("held_out_brier"), results.model_metrics.get("constant_brier")
        if brier is not None and constant is not None:
            found.append(f"Held-out Brier score of the model {brier:.4f}; {constant:.4f} for a constant forecast.")
    if results.error is not None:
        found.append(f"Held-out and measured p95 differ by a factor of {math.exp(results.error):.2f} in the median.")
    return found


def _latency_charts(results: Results, limit: float) -> list[str]:
    mixes = [mix for mix in mixes_in(results.cells) if mix]
    pieces = [mixes[begin : begin + MIXES_OF_A_CHART] for begin in range(0, max(1, len(mixes)), MIXES_OF_A_CHART)]
    return [_latency_chart(results, piece, limit) for piece in pieces]


def _latency_chart(results: Results, mixes: Sequence[Mix], limit: float) -> str:
    rates = np.array(sorted({cell.cell.rate for cell in results.cells}))
    series = [_course(results.cells, mix) for mix in [(), *mixes]]
    series = [one for one in series if len(one.x)]
    series.append(Series("limit", rates, np.full(len(rates), limit)))
    lowest = min(float(one.y.min()) for one in series)
    highest = max(float(one.y.max()) for one in series)
    return chart(
        "p95 latency by rate",
        "Each line a mix of batch jobs on the service's node; both axes are logarithmic.",
        line_chart(series, _decades("requests/s", rates), Axis("p95, ms", lowest / 1.3, highest * 1.3, True)),
    )


def _course(found: Sequence[CellFinding], mix: Mix) -> Series:
    own = sorted(
        (cell_finding.cell.rate, cell_finding.p95.middle) for cell_finding in found if cell_finding.cell.mix == mix
    )
    name = " + ".join(f"{count} {kind}" for kind, count in mix) or "alone"
    return Series(name, np.array([rate for rate, _ in own]), np.array([p95 for _, p95 in own]))


def _decades(title: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Axis:
    return Axis(title, float(values.min()) / 1.1, float(values.max()) * 1.1, logarithmic=True)


def _predicted_chart(results: Results) -> str:
    pairs = sorted(
        (cell.p95.middle, results.predicted[cell.cell]) for cell in results.cells if cell.cell in results.predicted
    )
    if len(pairs) < 2:
        return chart("Predicted and measured", "Too few cells, or no model passed the gate.", "<p>nothing to show</p>")
    measured, predicted = (np.array(column) for column in zip(*pairs, strict=True))
    low, high = float(min(measured.min(), predicted.min())) / 1.2, float(max(measured.max(), predicted.max())) * 1.2
    both = [
        Series("as predicted", measured, predicted, scattered=True),
        Series("equal", np.array([low, high]), np.array([low, high])),
    ]
    return chart(
        "Predicted and measured p95",
        "Of cells that the model did not see (four folds); both axes are logarithmic.",
        line_chart(both, Axis("measured p95, ms", low, high, True), Axis("predicted p95, ms", low, high, True)),
    )


def _fits(results: Results) -> str:
    names = list(dict.fromkeys(fit.name for fit in results.fits))
    if not names:
        return "<p>No job was named.</p>"
    by_key = {(fit.rate, fit.name): fit for fit in results.fits}
    rows = []
    for rate in sorted({fit.rate for fit in results.fits}):
        cells = [by_key[(rate, name)] for name in names]
        shown = [f"{_count(cell.measured)}<small>model {_count(cell.predicted)}</small>" for cell in cells]
        rows.append([f"{rate:,.0f}/s", *shown])
    return table(["rate", *names], rows)


def _cells(results: Results) -> str:
    rows = [
        [
            escape(cell.cell.named()),
            f"{cell.cell.rate:,.0f}/s",
            f"{cell.p95.middle:.3g} ms" + ("<small>at least</small>" if cell.cut else ""),
            f"{cell.p95.low:.3g} to {cell.p95.high:.3g}",
            f"{results.predicted[cell.cell]:.3g} ms" if cell.cell in results.predicted else "-",
            f"{cell.p95.windows}",
            f"{cell.broken_share:.0%}",
            "-" if math.isnan(cell.batch_cores) else f"{cell.batch_cores:.2f}",
            results.where.get(cell.cell, Standing.OPEN).value,
        ]
        for cell in results.cells
    ]
    heads = ["mix", "rate", "p95", "95 % interval", "predicted", "windows", "over the limit", "batch cores", "standing"]
    return table(heads, rows)


def _count(count: int | None) -> str:
    return "-" if count is None else f"{count}"


def described(journal: Journal) -> str:
    """Return the measured time, in words."""
    seconds = sum(window.seconds for window in journal.windows)
    return f"{counted(len(journal.windows), 'window')}, {format_seconds(seconds)}"

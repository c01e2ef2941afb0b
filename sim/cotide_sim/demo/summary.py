"""The demo's summary: one table, or one JSON document, of all policies on the same arrivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from cotide_core.units import format_seconds
from cotide_sim.cluster.scorecard import Summary
from cotide_sim.demo.facts import Moment


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """One policy's figures.

    Attributes
    ----------
    violation_ratio_by_service : each online service's share of time over its limit.
    ledger : its path; None when it was not kept.
    late_seconds : waiting that the machine itself added, in simulated seconds.
    history : how the run went.
    """

    figures: Summary
    violation_ratio_by_service: Mapping[str, float]
    ledger: str | None
    late_seconds: float = 0.0
    history: tuple[Moment, ...] = ()


def as_data(
    seed: int, nodes: int, outcomes: Mapping[str, PolicyOutcome], *, scenario: str, slot_seconds: float
) -> dict[str, Any]:
    """Return the document that the README promises."""
    policies = {
        name: {
            **outcome.figures,
            "qos_violation_ratio_by_service": dict(outcome.violation_ratio_by_service),
            "ledger": outcome.ledger,
            "late_seconds": outcome.late_seconds,
        }
        for name, outcome in outcomes.items()
    }
    return {
        "seed": seed,
        "nodes": nodes,
        "policies": policies,
        "scenario": scenario,
        "overload_slot_seconds": slot_seconds,
    }


def print_tables(console: Console, outcomes: Mapping[str, PolicyOutcome]) -> None:
    """Print the comparison, then each service's share of time over its limit."""
    policies = ["", "policy", *outcomes]
    figures = [outcome.figures for outcome in outcomes.values()]
    columns = [
        ["pods", "bound", *(f"{figure['pods_bound']}" for figure in figures)],
        ["jobs", "done", *(f"{figure['jobs_finished']}" for figure in figures)],
        ["waiting", "total", *(format_seconds(figure["waiting_seconds_total"]) for figure in figures)],
        ["waiting", "mean", *(f"{figure['waiting_seconds_mean']:.1f}s" for figure in figures)],
        ["over", "limit", *(f"{figure['qos_violation_ratio']:.2%}" for figure in figures)],
        ["cpu in", "use", *(f"{figure['cpu_utilisation']:.1%}" for figure in figures)],
        ["overload", "slots", *(f"{figure['overload_slots']}" for figure in figures)],
        ["evicted", "(online)", *(f"{figure['evictions']} ({figure['online_evictions']})" for figure in figures)],
        [
            "absent",
            "(pods)",
            *(f"{len(figure['services_never_ran'])} ({figure['online_pods_waiting']})" for figure in figures),
        ],
    ]
    console.print("same arrivals, policy by policy (times are simulated)", style="italic")
    _print_columns(console, policies, columns, headings=2)
    console.print("absent: services that never ran a pod (pods: online pods that wait at the end)", style="italic")
    services = sorted({name for outcome in outcomes.values() for name in outcome.violation_ratio_by_service})
    if not services:
        return
    columns = []
    for name, outcome in outcomes.items():
        ratios = (outcome.violation_ratio_by_service.get(service) for service in services)
        columns.append([name, *("-" if ratio is None else f"{ratio:.1%}" for ratio in ratios)])
    console.print("\nshare of time over the latency limit, by online service", style="italic")
    _print_columns(console, ["service", *services], columns, headings=1)


def _print_columns(console: Console, names: Sequence[str], columns: Sequence[Sequence[str]], *, headings: int) -> None:
    """Print columns next to their names; columns without room on the screen go below, with the names repeated.

    No cell is cut, however narrow the screen is: half a figure is a wrong one.
    """
    left = max(map(len, names))
    widths = [max(map(len, column)) for column in columns]
    first = 0
    while first < len(columns):
        last, used = first + 1, left + 2 + widths[first]
        while last < len(columns) and used + 2 + widths[last] <= console.width:
            used, last = used + 2 + widths[last], last + 1
        for row, name in enumerate(names):
            cells = [column[row].rjust(width) for column, width in zip(columns, widths, strict=True)][first:last]
            line = "  ".join([name.ljust(left), *cells]).rstrip()
            style = "bold" if row < headings else None
            console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
        first = last

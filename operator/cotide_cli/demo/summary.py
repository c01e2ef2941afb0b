"""The demo's last word: one table, or one JSON document, of all policies on the same arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from cotide_cli.demo.facts import Moment
from cotide_core.units import format_seconds
from cotide_sim.cluster.scorecard import Summary


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """One policy's figures.

    Attributes
    ----------
    violation_ratio_by_service : each online service's share of time over its limit.
    ledger : where it was kept; None where it was not.
    late_seconds : what the machine itself added to the waiting, simulated seconds.
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
    # Without lines between the columns it fits into 80 characters, long names of policies included.
    table = Table(title="same arrivals, policy by policy (times are simulated)", box=None, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    headings = (
        "pods bound", "jobs done", "waiting total", "waiting mean", "over limit", "cpu in use", "overload slots",
        "evicted (online)",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right")
    for name, outcome in outcomes.items():
        figures = outcome.figures
        table.add_row(
            name,
            f"{figures['pods_bound']}",
            f"{figures['jobs_finished']}",
            format_seconds(figures["waiting_seconds_total"]),
            f"{figures['waiting_seconds_mean']:.1f}s",
            f"{figures['qos_violation_ratio']:.2%}",
            f"{figures['cpu_utilisation']:.1%}",
            f"{figures['overload_slots']}",
            f"{figures['evictions']} ({figures['online_evictions']})",
        )
    console.print(table)
    services = sorted({name for outcome in outcomes.values() for name in outcome.violation_ratio_by_service})
    if not services:
        return
    by_service = Table(title="share of time over the latency limit, by online service")
    by_service.add_column("service")
    for name in outcomes:
        by_service.add_column(name, justify="right")
    for service in services:
        ratios = (outcome.violation_ratio_by_service.get(service) for outcome in outcomes.values())
        by_service.add_row(service, *("-" if ratio is None else f"{ratio:.1%}" for ratio in ratios))
    console.print(by_service)

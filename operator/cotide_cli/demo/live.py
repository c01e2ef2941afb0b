"""The demo's live view: one screen that shows what is placed, what runs, what waits and why.

`render` is a pure function from facts to a picture. On a terminal `LiveView` redraws it in place; elsewhere it
writes a line now and then, so that a log stays readable. Both write to stderr: stdout is for data.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cotide_cli.demo.facts import RunFacts, Stage
from cotide_core.classes import WorkloadClass
from cotide_core.units import format_seconds

SHADES: Final = " ▁▂▃▄▅▆▇█"
SHOWN_SERVICES: Final = 6
LINE_EVERY_SECONDS: Final = 5.0
"""Chosen: wall-clock seconds between progress lines where there is no terminal."""


def render(facts: RunFacts, number: int, of: int) -> RenderableType:
    """Draw one policy's run.

    Parameters
    ----------
    facts : RunFacts
        What was seen so far.
    number, of : int
        This policy's place among all that are run.
    """
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(f"{facts.policy}", style="bold"),
        f"policy {number} of {of}",
        ProgressBar(total=facts.duration_seconds, completed=facts.elapsed_seconds, width=30),
        f"{format_seconds(facts.elapsed_seconds)} of {format_seconds(facts.duration_seconds)} simulated",
    )
    return Panel(
        Group(head, Text(), _counts(facts), Text(), _nodes(facts), Text(), _services(facts), Text(), _decisions(facts)),
        title="cotide demo",
        border_style="blue",
    )


def progress_line(facts: RunFacts, number: int, of: int) -> str:
    """Return the run in one line of plain text."""
    batch = {stage: _offline(facts, stage) for stage in Stage}
    latest = facts.decisions[-1].text if facts.decisions else ""
    return (
        f"[{number}/{of} {facts.policy}] {format_seconds(facts.elapsed_seconds)} simulated: "
        f"{batch[Stage.QUEUED]} queued, {batch[Stage.RUNNING]} running, {batch[Stage.SUCCEEDED]} done; "
        f"cpu {facts.cpu_share():.0%}, {facts.services_over_limit()} of {len(facts.services)} services over their "
        f"limit, {facts.overload_slots} overload slots" + (f"; {latest}" if latest else "")
    )


def _offline(facts: RunFacts, stage: Stage) -> int:
    return facts.count(WorkloadClass.BATCH, stage) + facts.count(WorkloadClass.GRATIS, stage)


def _counts(facts: RunFacts) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("pods")
    for stage in Stage:
        table.add_column(stage.value, justify="right")
    for workload_class in WorkloadClass:
        table.add_row(workload_class.value, *(str(facts.count(workload_class, stage)) for stage in Stage))
    table.caption = f"jobs: {facts.jobs_submitted} of {facts.jobs_planned} submitted"
    table.caption_justify = "left"
    return table


def _nodes(facts: RunFacts) -> Text:
    hurt = {service.node for service in facts.services.values() if service.over_limit}
    text = Text("cpu in use by node  ")
    for name in sorted(facts.node_cpu_share):
        share = min(1.0, max(0.0, facts.node_cpu_share[name]))
        shade = SHADES[round(share * (len(SHADES) - 1))]
        text.append(shade, style="red on black" if name in hurt else "green on black")
    text.append(f"  mean {facts.cpu_share():.0%} (red: a service there breaks its limit)\n")
    text.append("use + allocation     ")
    for name in sorted(facts.node_load_share):
        share = facts.node_load_share[name]
        shade = SHADES[round(min(1.0, max(0.0, share)) * (len(SHADES) - 1))]
        text.append(shade, style="red on black" if share > 1.0 else "cyan on black")
    text.append(f"  {facts.overload_slots} overload slots so far (red: online use + batch allocation exceed the node)")
    if facts.reclaimed_millicores:
        offered, held = sum(facts.reclaimed_millicores.values()) / 1000, facts.held_millicores() / 1000
        text.append(f"\nforecast to be free  {offered:.0f} cores offered to batch and gratis pods, {held:.0f} held")
    return text


def _services(facts: RunFacts) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("online pod", "node", "requests/s", "p95 ms", "limit ms"):
        table.add_column(heading, justify="left" if heading in ("online pod", "node") else "right")
    ranked = sorted(facts.services.values(), key=lambda s: s.latency_milliseconds / s.limit_milliseconds, reverse=True)
    for service in ranked[:SHOWN_SERVICES]:
        style = "red" if service.over_limit else ""
        table.add_row(
            service.name,
            service.node,
            f"{service.requests_per_second:,.0f}",
            f"{service.latency_milliseconds:.2f}",
            f"{service.limit_milliseconds:g}",
            style=style,
        )
    return table


def _decisions(facts: RunFacts) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for decision in facts.decisions:
        table.add_row(
            format_seconds(decision.at_seconds - facts.started_seconds),
            Text("→" if decision.node else "…", style="green" if decision.node else "yellow"),
            decision.pod,
            Text(decision.text, overflow="ellipsis", no_wrap=True),
        )
    return table


class LiveView:
    """Shows a run as it goes on: in place on a terminal, else a line every few seconds."""

    def __init__(self, console: Console, number: int, of: int) -> None:
        self._console = console
        self._place = (number, of)
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._last_line_wall_seconds = float("-inf")

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        if self._live is not None:
            self._live.stop()

    def show(self, facts: RunFacts, wall_seconds: float) -> None:
        """Draw the facts; ``wall_seconds`` is any steady clock."""
        if self._live is not None:
            self._live.update(render(facts, *self._place), refresh=True)
        elif wall_seconds - self._last_line_wall_seconds >= LINE_EVERY_SECONDS:
            self._last_line_wall_seconds = wall_seconds
            self._console.print(progress_line(facts, *self._place), highlight=False, soft_wrap=True)

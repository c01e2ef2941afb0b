"""The demo's live view: one screen with the placed, running and waiting pods, and the reasons.

`render` is a pure function from facts to a picture. On a terminal `LiveView` redraws it in place; elsewhere it writes a
line from time to time, so that a log stays readable. Both write to stderr: stdout is for data.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cotide_core.classes import WorkloadClass
from cotide_core.units import counted, format_seconds
from cotide_sim.demo.facts import RunFacts, Stage

SHADES: Final = " ▁▂▃▄▅▆▇█"
LEAST_SERVICES: Final = 3
LEAST_DECISIONS: Final = 3
"""Chosen: rows that services and decisions keep on the smallest screen, of 80 columns and 24 lines."""
FIXED_LINES: Final = 14
"""The frame, the head, pods by class, nodes, the headings, and empty lines between them."""
LABEL_COLUMNS: Final = 17
REMARK_COLUMNS: Final = 17
LINE_EVERY_SECONDS: Final = 5.0
"""Chosen: wall-clock seconds between progress lines without a terminal."""


def render(facts: RunFacts, number: int, of: int, *, width: int = 80, height: int = 24) -> RenderableType:
    """Draw one policy's run into a screen of ``width`` columns and ``height`` lines, at least 80 by 24.

    Parameters
    ----------
    facts : RunFacts
        The facts so far.
    number, of : int
        This policy is the ``number``-th ``of`` all policies.
    """
    head = Table.grid(padding=(0, 2))
    head.add_row(
        ProgressBar(total=facts.duration_seconds, completed=facts.elapsed_seconds, width=24, complete_style="blue"),
        f"{format_seconds(facts.elapsed_seconds)} of {format_seconds(facts.duration_seconds)} simulated",
        f"{facts.jobs_submitted} of {facts.jobs_planned} jobs came",
    )
    inside = width - 4
    # One line stays free below: a terminal that is filled to its last line scrolls.
    rows = height - 1 - FIXED_LINES - len(facts.reclaimed_millicores and [1])
    decisions = min(len(facts.decisions), max(LEAST_DECISIONS, rows - len(facts.services)))
    services = min(len(facts.services), max(LEAST_SERVICES, rows - decisions))
    parts = (_counts(facts), _nodes(facts, inside), _services(facts, services), _decisions(facts, decisions))
    return Panel(
        Group(head, *(part for one in parts for part in (Text(), one))),
        title=f"cotide demo: {facts.policy}, policy {number} of {of}",
        border_style="blue",
        width=width,
    )


def progress_line(facts: RunFacts, number: int, of: int) -> str:
    """Return the run in one line of plain text."""
    batch = {stage: _offline(facts, stage) for stage in Stage}
    latest = facts.decisions[-1].text if facts.decisions else ""
    return (
        f"[{number}/{of} {facts.policy}] {format_seconds(facts.elapsed_seconds)} simulated: "
        f"{batch[Stage.QUEUED]} queued, {batch[Stage.RUNNING]} running, {batch[Stage.SUCCEEDED]} done; "
        f"cpu {facts.cpu_share():.0%}, {facts.services_over_limit()} of {len(facts.services)} services over their "
        f"limit, {counted(facts.overload_slots, 'overload slot')}" + (f"; {latest}" if latest else "")
    )


def _offline(facts: RunFacts, stage: Stage) -> int:
    return facts.count(WorkloadClass.BATCH, stage) + facts.count(WorkloadClass.GRATIS, stage)


def _counts(facts: RunFacts) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("pods", min_width=LABEL_COLUMNS - 2)
    for stage in Stage:
        table.add_column(stage.value, justify="right")
    for workload_class in WorkloadClass:
        table.add_row(workload_class.value, *(str(facts.count(workload_class, stage)) for stage in Stage))
    return table


def _nodes(facts: RunFacts, columns: int) -> Text:
    hurt = {service.node for service in facts.services.values() if service.over_limit}
    loaded = {node for node, share in facts.node_load_share.items() if share > 1.0}
    cells = columns - LABEL_COLUMNS - REMARK_COLUMNS
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{'cpu in use':{LABEL_COLUMNS}}")
    _strip(text, facts.node_cpu_share, hurt, cells, "green")
    text.append(f"  mean {facts.cpu_share():.0%}\n")
    text.append(f"{'and allocated':{LABEL_COLUMNS}}")
    _strip(text, facts.node_load_share, loaded, cells, "cyan")
    text.append(f"  {counted(facts.overload_slots, 'overload')}")
    if facts.reclaimed_millicores:
        offered, held = sum(facts.reclaimed_millicores.values()) / 1000, facts.held_millicores() / 1000
        text.append(
            f"\n{'forecast free':{LABEL_COLUMNS}}{offered:.0f} cores offered to batch and gratis pods, {held:.0f} held"
        )
    return text


def _strip(text: Text, shares: Mapping[str, float], red: set[str], cells: int, colour: str) -> None:
    """Draw a shade for each node, or for each group of nodes when there are more nodes than cells: the group's
    fullest."""
    names = sorted(shares)
    together = max(1, -(-len(names) // cells))
    for first in range(0, len(names), together):
        group = names[first : first + together]
        share = min(1.0, max(0.0, *(shares[name] for name in group), 0.0))
        shade = SHADES[round(share * (len(SHADES) - 1))]
        text.append(shade, style=f"{'red' if red.intersection(group) else colour} on black")


def _services(facts: RunFacts, most: int) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("online pod", "node", "requests/s", "p95 ms", "limit ms"):
        table.add_column(heading, justify="left" if heading in ("online pod", "node") else "right", no_wrap=True)
    ranked = sorted(facts.services.values(), key=lambda s: s.latency_milliseconds / s.limit_milliseconds, reverse=True)
    for service in ranked[:most]:
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


def _decisions(facts: RunFacts, most: int) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, expand=True)
    table.add_column(no_wrap=True, justify="right", width=7)
    table.add_column(no_wrap=True, width=1)
    table.add_column(no_wrap=True, overflow="ellipsis", width=16)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for decision in list(facts.decisions)[-most:] if most else ():
        table.add_row(
            format_seconds(decision.at_seconds - facts.started_seconds),
            Text("→" if decision.node else "…", style="green" if decision.node else "yellow"),
            decision.pod,
            decision.text,
        )
    return table


class LiveView:
    """Shows a run while it lasts: in place on a terminal, otherwise a line every few seconds."""

    def __init__(self, console: Console, number: int, of: int) -> None:
        self._console = console
        self._number, self._of = number, of
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
            width, height = self._console.size
            picture = render(facts, self._number, self._of, width=max(80, min(width, 120)), height=max(24, height))
            self._live.update(picture, refresh=True)
        elif wall_seconds - self._last_line_wall_seconds >= LINE_EVERY_SECONDS:
            self._last_line_wall_seconds = wall_seconds
            self._console.print(progress_line(facts, self._number, self._of), highlight=False, soft_wrap=True)

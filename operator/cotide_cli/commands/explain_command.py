"""``cotide explain``: one screen on why a pod or a Job is where it is, or why it waits.

Reads the API server only; the operator need not run. The explanation itself is made in
`cotide_operator.explain.explanation`.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cotide_cli.printing import as_text, output_option
from cotide_core.errors import InputError
from cotide_core.limits import NAME_CHARACTERS
from cotide_operator.explain.explanation import Explanation
from cotide_operator.explain.reader import Reader

_NAME: Final = re.compile(rf"[a-z0-9.-]{{1,{NAME_CHARACTERS}}}")
PIPE_WIDTH: Final = 120
"""Columns where there is no terminal; chosen, so that a pipe does not break sentences at 80."""


@click.command(name="explain")
@click.argument("kind", type=click.Choice(["pod", "job"]))
@click.argument("name")
@click.option("-n", "--namespace", help="Namespace; that of the kubeconfig's context if not given.")
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Kubeconfig file; else $KUBECONFIG, ~/.kube/config."
)
@click.option("--context", help="Context of the kubeconfig.")
@output_option
def command(
    kind: Literal["pod", "job"],
    name: str,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    output: Literal["table", "json", "yaml"],
) -> None:
    """Say why a pod or a Job (jobs.cotide.dev) is where it is, or why it waits."""
    for field, given in (("name", name), ("--namespace", namespace)):
        if given is not None and not _NAME.fullmatch(given):
            raise InputError(f"{given[:NAME_CHARACTERS]!r} is no name that an object can have", field=field)
    reader = Reader(kubeconfig, context)
    explanation = (reader.pod if kind == "pod" else reader.job)(namespace or reader.namespace, name)
    for warning in reader.warnings:
        click.echo(f"cotide: {warning}", err=True)
    if output != "table":
        click.echo(as_text(explanation.data, output))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=PIPE_WIDTH)
        show(explanation, console)


def show(explanation: Explanation, console: Console) -> None:
    """Print an explanation as one screen."""
    console.print(explanation.title, style="bold", markup=False)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="cyan", no_wrap=True)
    facts.add_column()
    for what, words in explanation.facts:
        facts.add_row(what, escape(words))
    console.print(facts)
    if explanation.refusals:
        _show_refusals(explanation, console)
    if explanation.pods:
        pods = _table("Pod", "Phase", "Node", "Position", "Reason")
        for row in explanation.pods:
            pods.add_row(*(escape(cell) for cell in row))
        console.print()
        console.print(pods)
    if explanation.happenings:
        events = _table("Last seen", "Event", "About", "Message")
        for one in explanation.happenings:
            times = f" (x{one.count})" if one.count > 1 else ""
            events.add_row(
                escape(one.last_seen), escape(f"{one.reason}{times}"), escape(one.object), escape(one.message)
            )
        console.print()
        console.print(events)


def _show_refusals(explanation: Explanation, console: Console) -> None:
    refusals = _table("Nodes", "Refused because", "Probability", "For example")
    for refusal in explanation.refusals:
        probability = f"{refusal.probability:.2f}" if refusal.probability is not None else ""
        sentence = f"{refusal.reason}: {refusal.message}"
        refusals.add_row(str(refusal.nodes), escape(sentence), probability, escape(refusal.example))
    if explanation.unlisted_nodes:
        refusals.add_row(str(explanation.unlisted_nodes), "other reasons (the note on the pod is short)", "", "")
    console.print()
    console.print(refusals)


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table

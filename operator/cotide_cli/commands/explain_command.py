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


Kind = Literal["pod", "job"]
_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("pod", "pods", "po"), "pod"),
    **dict.fromkeys(("job", "jobs", "cjob", "job.cotide.dev", "jobs.cotide.dev"), "job"),
}
"""What may be explained, by each word that kubectl takes for it."""


def _words(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds that a shell may complete to."""
    del context, parameter
    return [word for word in ("pod", "job") if word.startswith(incomplete)]


@click.command(name="explain")
@click.argument("kind", metavar="KIND[/NAME]", shell_complete=_words)
@click.argument("name", required=False)
@click.option("-n", "--namespace", help="Namespace; that of the kubeconfig's context if not given.")
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Kubeconfig file; else $KUBECONFIG, ~/.kube/config."
)
@click.option("--context", help="Context of the kubeconfig.")
@output_option
def command(
    kind: str,
    name: str | None,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    output: Literal["table", "json", "yaml"],
) -> None:
    """Explain why a pod or a Job (jobs.cotide.dev) is where it is, or why it waits.

    Takes kubectl's ways to name one: job wordcount, jobs wordcount, job/wordcount, cjob/wordcount.
    """
    one, name = _named(kind, name)
    for field, given in (("name", name), ("--namespace", namespace)):
        if given is not None and not _NAME.fullmatch(given):
            raise InputError(f"{given[:NAME_CHARACTERS]!r} is not a valid name of an object", field=field)
    reader = Reader(kubeconfig, context)
    explanation = (reader.pod if one == "pod" else reader.job)(namespace or reader.namespace, name)
    for warning in reader.warnings:
        click.echo(f"cotide: {warning}", err=True)
    if output != "table":
        click.echo(as_text(explanation.data, output))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=PIPE_WIDTH)
        show(explanation, console)


def _named(kind: str, name: str | None) -> tuple[Kind, str]:
    """Return kind and name of ``job NAME`` and of ``job/NAME``.

    Raises
    ------
    InputError
        When the kind is none that is explained, or no name or two are given.
    """
    word, slash, behind = kind.partition("/")
    one = _KINDS.get(word.lower())
    if one is None:
        raise InputError(f"{word[:NAME_CHARACTERS]!r} is not one of 'pod', 'job'", field="kind")
    if slash and name is not None:
        raise InputError(f"is given twice: {kind[:NAME_CHARACTERS]!r} has one", field="name")
    name = behind if slash else name
    if not name:
        raise InputError(f"is missing: cotide explain {one} NAME, or {one}/NAME", field="name")
    return one, name


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
        for happening in explanation.happenings:
            times = f" (x{happening.count})" if happening.count > 1 else ""
            events.add_row(
                escape(happening.last_seen),
                escape(f"{happening.reason}{times}"),
                escape(happening.object),
                escape(happening.message),
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

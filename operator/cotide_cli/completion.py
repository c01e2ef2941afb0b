"""Completion of command lines: scripts for shells, and the answers that kubectl asks of a plugin.

Called by `main` and, as a program of its own, by kubectl. Click finds the candidates; this module only uses kubectl's
format: one candidate per line with its description behind a tab, then a colon and a directive for the shell. Invariant:
nothing else is printed, whatever the line contains.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import ShellComplete

FILES: Final = 0
NO_FILES: Final = 4
"""Directives of cobra, kubectl's library: `ShellCompDirectiveDefault` and `ShellCompDirectiveNoFileComp`."""


def kubectl_answer(program: click.Command, arguments: Sequence[str]) -> str:
    """Return the answer to kubectl for a line; the last argument is the current word, empty for a new one."""
    *before, word = arguments or ("",)
    found = ShellComplete(program, {}, "cotide", "_COTIDE_COMPLETE").get_completions(list(before), word)
    plain = [item for item in found if item.type == "plain"]
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in plain]
    return "\n".join([*lines, f":{NO_FILES if plain or not found else FILES}"])


def kubectl_main() -> None:
    """Answer kubectl (``kubectl_complete-cotide``)."""
    from cotide_cli.main import cotide

    print(kubectl_answer(cotide, sys.argv[1:]))

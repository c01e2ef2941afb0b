"""`cotide completion`: the script that makes a shell complete `cotide`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that makes SHELL complete the command.

    \b
    bash, zsh  source <(cotide completion bash)
    fish       cotide completion fish | source
    """
    from cotide_cli.main import cotide

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  click knows the three
    click.echo(kind(cotide, {}, "cotide", "_COTIDE_COMPLETE").source())

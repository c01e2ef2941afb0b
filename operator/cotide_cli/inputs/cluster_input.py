"""Source of the cluster for `consolidate` and `whatif`: a live one through the official client, or a ledger."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cotide_cli.inputs.ledger_input import ledger_file, ledger_lines
from cotide_core.errors import InputError, LedgerError

if TYPE_CHECKING:
    from cotide_operator.consolidation.picture import Picture

F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(command: F) -> F:
    """Add the options that select the cluster."""
    for option in (
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            help="The operator's configuration file: its schedulerNames and what gives a pod its class.",
        ),
        click.option("--context", help="Context of the kubeconfig."),
        click.option(
            "--kubeconfig", type=click.Path(dir_okay=False), help="Kubeconfig file; else $KUBECONFIG, ~/.kube/config."
        ),
        click.option("--at", type=float, help="Seconds of the ledger's own clock; its end if not given."),
        click.option(
            "--ledger", type=click.Path(path_type=Path), help="A recorded ledger (or its directory), no live cluster."
        ),
    ):
        command = option(command)
    return command


def read_picture(
    ledger: Path | None, at: float | None, kubeconfig: str | None, context: str | None, config: Path | None = None
) -> Picture:
    """Read the cluster; unreadable objects are reported on stderr.

    Raises
    ------
    InputError
        When the ledger can't be read or is invalid; when a time is invalid or given without a ledger; when a
        configuration is given with a ledger, or has a fault.
    """
    from cotide_operator.config.settings import read_settings
    from cotide_operator.consolidation.official_client import OfficialClient
    from cotide_operator.consolidation.picture import picture_of_ledger

    if at is not None and not isfinite(at):
        raise InputError(f"{at:g} is not a number of seconds", field="--at")
    if ledger is None:
        if at is not None:
            raise InputError("names a time of a ledger, which is not given", field="--at")
        picture = OfficialClient(kubeconfig, context, read_settings(config)).read()
    else:
        if config is not None:
            raise InputError(
                "configures the reading of a live cluster; a ledger already holds decisions", field="--config"
            )
        file = ledger_file(ledger)
        try:
            with ledger_lines(file) as lines:
                picture = picture_of_ledger(lines, at)
        except LedgerError as error:
            raise InputError(str(error), file=str(file)) from error
    for warning in picture.warnings:
        click.echo(f"cotide: {warning}", err=True)
    return picture

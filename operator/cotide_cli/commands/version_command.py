"""`cotide version`: the versions of Cotide and of what it decides with, for reports of faults."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click

from cotide_cli.printing import as_text, output_option, print_lines

PACKAGES: Final = (
    "kopf",
    "kubernetes",
    "numpy",
    "scipy",
    "statsmodels",
    "scikit-learn",
    "xgboost-cpu",
    "xgboost",
    "numba",
)
"""What decisions and forecasts depend on; of two builds of one library the one that is installed is shown."""


@click.command("version")
@output_option
def command(output: str) -> None:
    """Print the versions of Cotide and of what it decides with."""
    versions = {"cotide": version("cotide"), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    if output == "table":
        print_lines([[name, number] for name, number in versions.items()])
    else:
        click.echo(as_text(versions, output))

"""`cotide version`: the versions of Cotide and of its libraries, for reports of faults."""

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
"""Packages that decisions and forecasts depend on; for two builds of a library, the installed one is shown."""


@click.command("version")
@output_option
def command(output: str) -> None:
    """Print the versions of Cotide and of the libraries that its decisions depend on."""
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

"""Type of an option that names a plot, which is checked before the experiment runs.

Used by the commands of the experiments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cotide_cli.inputs.checked_types import OutputFile
from cotide_lab.experiments import figure_file


class PlotFile(OutputFile):
    """A plot with a known file ending."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return its path.

        Raises
        ------
        InputError
            When no plot can be written to that path, or on this machine at all.
        """
        figure_file.check(Path(value))
        return super().convert(value, param, ctx)

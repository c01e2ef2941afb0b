"""`FiniteRange`: a finite number of an option, within bounds.

Used by all commands with such options. `click.FloatRange` accepts nan, since every comparison with it is false, and
infinity without an upper bound.
"""

from __future__ import annotations

import math
from typing import Any

import click

from cotide_core.errors import InputError


class FiniteRange(click.FloatRange):
    """A `click.FloatRange` without nan and without infinity, except as a default."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number.

        Raises
        ------
        InputError
            When it is not a finite number.
        """
        found = super().convert(value, param, ctx)
        if isinstance(value, str) and not math.isfinite(found):
            raise InputError(f"{found:g} is no number", field=None if param is None else param.opts[0])
        return found

"""`FiniteRange`: an option's number within bounds that is a number.

Used by all commands with such options. `click.FloatRange` lets nan through, since every comparison with it is false,
and infinity where there is no upper bound.
"""

from __future__ import annotations

import math
from typing import Any

import click

from cotide_core.errors import InputError


class FiniteRange(click.FloatRange):
    """A `click.FloatRange` without nan and without infinity, but for a default."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number.

        Raises
        ------
        InputError
            When it is none.
        """
        found = super().convert(value, param, ctx)
        if isinstance(value, str) and not math.isfinite(found):
            raise InputError(f"{found:g} is no number", field=None if param is None else param.opts[0])
        return found

"""The archive's cleaning filters: which rows to leave out, in the words that the headers of cleaned logs use.

Called by `swf_cleaning` and the command line. Pure. Invariant: text that is no filter is refused with a message that
names the expected form.

A filter is comparisons joined by ``and``, with or without brackets: ``user=68 and (job>=58 and job<=564)``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.errors import InputError
from cotide_sim.traces.jobs.swf import Field
from cotide_sim.traces.jobs.swf_rows import Table

_FIELDS: Final = {field.name.lower(): field for field in Field}
_TERM: Final = re.compile(r"^([a-z_]+)\s*(<=|>=|!=|=|<|>)\s*(-?\d+(?:\.\d+)?)$")


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rows that satisfy every comparison."""

    text: str
    terms: tuple[tuple[Field, str, float], ...]

    def matches(self, table: Table) -> npt.NDArray[np.bool_]:
        """Return which rows of a (n, 18) table are meant."""
        found = np.ones(len(table), dtype=np.bool_)
        for field, sign, value in self.terms:
            found &= _compare(table[:, field], sign, value)
        return found


def parse_exclusion(text: str) -> Exclusion:
    """Read a filter.

    Raises
    ------
    InputError
        When a part is no comparison of a field with a number.
    """
    terms = []
    for part in re.split(r"\band\b", text.replace("(", " ").replace(")", " ").lower()):
        match = _TERM.match(part.strip())
        if match is None or match[1] not in _FIELDS:
            raise InputError(
                f"{part.strip()!r} is no comparison; write for example 'user=2 and job>=10', "
                f"with one of {', '.join(_FIELDS)}",
                field="exclude",
            )
        terms.append((_FIELDS[match[1]], match[2], float(match[3])))
    return Exclusion(text.strip(), tuple(terms))


def _compare(column: npt.NDArray[np.float64], sign: str, value: float) -> npt.NDArray[np.bool_]:
    outcomes = {
        "=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    }  # fmt: skip
    found: npt.NDArray[np.bool_] = outcomes[sign](column, value)
    return found

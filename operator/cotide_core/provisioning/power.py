"""Power of a machine: idle watts plus a slope times utilisation (Zhang and Boutaba 2014, eq. 9), or a measured curve.

Called by `capacity_program` (the line, which a linear program needs) and by the accounts of energy (the curve).
Invariant: at utilisation 0 and 1 the line through a curve's ends and the curve agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.errors import InputError
from cotide_core.provisioning.programs import Floats

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Watts at evenly spaced loads from idle to full, as SPECpower reports them (0, 10, ..., 100 %)."""

    watts: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.watts) < 2 or not all(np.isfinite(self.watts)) or min(self.watts) < 0:
            raise InputError("a power curve needs two finite values >= 0 at least, idle and full load", field="watts")

    @property
    def idle(self) -> float:
        """Return the watts of an idle machine."""
        return self.watts[0]

    @property
    def slope(self) -> float:
        """Return the watts from idle to full load."""
        return self.watts[-1] - self.watts[0]

    def at(self, utilisation: Floats) -> Floats:
        """Return the watts at utilisations, which are cut to [0, 1]; linear between the points."""
        points = np.linspace(0.0, 1.0, len(self.watts))
        drawn: Floats = np.interp(np.clip(utilisation, 0.0, 1.0), points, self.watts)
        return drawn

    def scaled(self, factor: float) -> PowerCurve:
        """Return the curve of a machine that is ``factor`` times as large."""
        return PowerCurve(tuple(factor * watts for watts in self.watts))

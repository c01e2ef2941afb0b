"""The over-provisioning factor, learned from packing losses (Zhang and Boutaba 2014, eq. 13, where it is 1.2).

Called by the code that runs capacity plans, after each step. Whole tasks do not fill machines. Sometimes a task finds
no room on machines that are up although their free parts together would hold it: that free part is lost to packing. The
factor of a class is the amount up over the amount filled at such moments, smoothed. Invariant: a factor stays in [1,
``ceiling``].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.provisioning.programs import Booleans, Floats

PAPER = 1.2
"""Zhang and Boutaba 2014, sec. III: a reasonable value in practice."""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedFactor:
    """One factor for each class.

    Attributes
    ----------
    factor : (K,) now.
    memory : share of the old value that a moment of loss keeps (chosen).
    decay : share of the distance to 1 that is kept at a step without waiting (chosen: slow, since waiting costs more).
    """

    factor: Floats
    memory: float = 0.8
    decay: float = 0.995
    ceiling: float = 2.0

    @classmethod
    def start(cls, classes: int) -> LearnedFactor:
        """Return the paper's factor for every class."""
        return cls(np.full(classes, PAPER))

    def after(self, waited: Booleans, filled: Floats) -> LearnedFactor:
        """Return the factors after a step.

        Parameters
        ----------
        waited : (K,) classes with a waiting task although machines of their types were up.
        filled : (K,) share of the scarcest resource that was in use on those machines meanwhile, in (0, 1].
        """
        seen = 1.0 / np.clip(np.where(np.isfinite(filled), filled, 1.0), 1.0 / self.ceiling, 1.0)
        raised = np.maximum(self.factor, self.memory * self.factor + (1.0 - self.memory) * seen)
        calm = 1.0 + self.decay * (self.factor - 1.0)
        factor = np.clip(np.where(waited, raised, calm), 1.0, self.ceiling)
        return LearnedFactor(factor, self.memory, self.decay, self.ceiling)

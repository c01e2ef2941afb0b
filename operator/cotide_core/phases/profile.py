"""A task's profile: its phases in order, each with its needs and its duration.

Made by the simulator's workloads and by statements of phases. Invariant: a profile has at least one phase; no need is
below 0 or beyond `limits.MAX_EXACT_INT`, and all phases name the same resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cotide_core.errors import InputError
from cotide_core.limits import MAX_EXACT_INT, MAX_SECONDS

MAX_PHASES: Final = 16
"""Phases of one task. Chosen: twice the eight that Hadoop's own counters distinguish."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a task with a steady need.

    Attributes
    ----------
    name : for people.
    need : amount of each resource (millicores, bytes), in the order of the profile's resources.
    milliseconds : its duration with all that it needs, > 0.
    """

    name: str
    need: tuple[int, ...]
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The phases of each task of a group.

    Raises
    ------
    InputError
        When there is no phase or too many, or a number is out of its range; names the phase.
    """

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.phases) <= MAX_PHASES:
            raise InputError(f"{len(self.phases)} phases, where 1 to {MAX_PHASES} are possible", field="phases")
        for phase in self.phases:
            if len(phase.need) != len(self.phases[0].need):
                raise InputError("names other resources than the first phase", field=f"phases[{phase.name}]")
            if any(not 0 <= amount <= MAX_EXACT_INT for amount in phase.need):
                raise InputError("a need lies between 0 and 2^53", field=f"phases[{phase.name}].need")
            if not 0 < phase.milliseconds <= MAX_SECONDS * 1000:
                raise InputError(f"lasts more than 0 and at most {MAX_SECONDS} s", field=f"phases[{phase.name}]")

    def largest(self) -> tuple[int, ...]:
        """Return the most of each resource that any phase needs: a task-level scheduler holds it all the time."""
        return tuple(max(amounts) for amounts in zip(*(phase.need for phase in self.phases), strict=True))

    def as_one(self) -> Profile:
        """Return the task as a task-level scheduler sees it: one phase of the largest needs."""
        return Profile((Phase("task", self.largest(), sum(phase.milliseconds for phase in self.phases)),))

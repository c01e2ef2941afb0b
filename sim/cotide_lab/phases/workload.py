"""What is to run: jobs, their stages of equal tasks, and the phases of each, true and as stated.

Made by `mixes` and `swim_model`; read by `rules` and `world`. Invariant: stages stand in the order of their jobs, and
in a job each waits for all tasks of the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.phases.profile import Phase, Profile

RESOURCES = ("cpu millicores", "memory bytes")


@dataclass(frozen=True, slots=True)
class Stage:
    """Equal tasks of a job.

    Attributes
    ----------
    job : from 0.
    true : what a task really needs, and for how long.
    tasks : how many.
    reduces : whether they are reduces (they take reduce slots).
    stated : what the scheduler sees; the truth by default.
    """

    job: int
    true: Profile
    tasks: int
    reduces: bool
    stated: Profile | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """J jobs.

    Attributes
    ----------
    name : of people's choice.
    kinds : of each job, for tables.
    submitted : (J,) milliseconds, rising.
    stages : of all jobs.
    factor : (T,) how many times as long each task takes: stragglers are above 1.
    capacity : (N, R) of the nodes, in `RESOURCES`.
    """

    name: str
    kinds: tuple[str, ...]
    submitted: Integers
    stages: tuple[Stage, ...]
    factor: Floats
    capacity: Integers

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return len(self.factor)

    def misstated(self, share: float, seed: int) -> Workload:
        """Return the same work with stated needs wrong by up to a share, for each phase and resource alone."""
        generator = np.random.default_rng(seed)
        known: dict[int, Profile] = {}
        stages = []
        for stage in self.stages:
            if id(stage.true) not in known:
                known[id(stage.true)] = Profile(
                    tuple(
                        Phase(
                            phase.name,
                            tuple(
                                max(1, int(number * generator.uniform(1 - share, 1 + share))) for number in phase.need
                            ),
                            phase.milliseconds,
                        )
                        for phase in stage.true.phases
                    )
                )
            stages.append(replace(stage, stated=known[id(stage.true)]))
        return replace(self, stages=tuple(stages))


def stragglers(tasks: int, generator: np.random.Generator) -> Floats:
    """Return factors of tasks: a little noise, and one task in twenty takes 1.5 to 4 times as long (chosen)."""
    factor = generator.lognormal(0.0, 0.1, tasks)
    slow = generator.random(tasks) < 0.05
    return np.where(slow, factor * generator.uniform(1.5, 4.0, tasks), factor)

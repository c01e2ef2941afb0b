"""The policies a log can be replayed under, by name: which kernel, which orders, what is promised.

Called by `runner` and by the command line; names, aliases and summaries are the catalogue's.

A policy's queue order decides which job is first; its backfill order decides which of the others is tried first. Area
and volume are the same thing on one resource: processors x forecast run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cotide_core.config import FAIR_HALF_LIFE_SECONDS
from cotide_core.policies.catalogue import BY_NAME, Runner, entry_of
from cotide_lab.trace_replay.kernels.easy import BY_DEMAND, BY_RUN, BY_SUBMIT, BY_VOLUME, NO_BACKFILL
from cotide_lab.trace_replay.kernels.platform import PlatformSettings
from cotide_lab.trace_replay.kernels.set_plan import BY_BLOCK, BY_PARTS

Kernel = Literal[
    "queue",
    "fair",
    "conservative",
    "slack",
    "plan",
    "set-plan",
    "platform",
    "printed-platform",
    "least-work",
    "drawn",
    "apart",
]
"""The last three are for many machines: plans on those with the least work, on drawn ones, and with machines apart for
jobs of much demand."""
Owners = Literal["user", "group"]
"""The owner that replaces a namespace where shares are kept."""
PLATFORMS: Final[tuple[Kernel, ...]] = ("platform", "printed-platform")
"""Kernels that distinguish predictable jobs from others, and so always learn."""


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """One policy.

    Attributes
    ----------
    order, backfill : codes of `cotide_lab.trace_replay.kernels.easy`, or of `set_plan` for its kernel; backfill is read
        by the queue kernel only.
    platform : settings of ``hybrid``; None for the engine's.
    shuffled : jobs are planned in a drawn order; on many machines.
    owners, half_life_seconds : under ``fair``, the owners that have shares, and the time after which their use counts
    half.
    """

    name: str
    kernel: Kernel
    order: int = BY_SUBMIT
    backfill: int = NO_BACKFILL
    platform: PlatformSettings | None = None
    shuffled: bool = False
    owners: Owners = "user"
    half_life_seconds: float = FAIR_HALF_LIFE_SECONDS

    @property
    def summary(self) -> str:
        """One line of the catalogue."""
        return BY_NAME[self.name].summary


_CHOICES: Final[tuple[tuple[str, Kernel], ...]] = (("lw", "least-work"), ("random", "drawn"))
POLICIES: Final[dict[str, ReplayPolicy]] = {
    policy.name: policy
    for policy in (
        ReplayPolicy("fcfs", "queue"),
        ReplayPolicy("sjf-queue", "queue", BY_RUN),
        ReplayPolicy("svf-queue", "queue", BY_VOLUME),
        ReplayPolicy("easy", "queue", BY_SUBMIT, BY_SUBMIT),
        ReplayPolicy("easy-sjbf", "queue", BY_SUBMIT, BY_RUN),
        ReplayPolicy("easy-svbf", "queue", BY_SUBMIT, BY_VOLUME),
        ReplayPolicy("easy-sjf", "queue", BY_RUN, BY_RUN),
        ReplayPolicy("easy-svf", "queue", BY_VOLUME, BY_VOLUME),
        ReplayPolicy("fair", "fair"),
        ReplayPolicy("conservative", "conservative"),
        ReplayPolicy("slack", "slack"),
        ReplayPolicy("sjf", "plan", BY_RUN),
        ReplayPolicy("sdf", "plan", BY_DEMAND),
        ReplayPolicy("svf", "plan", BY_VOLUME),
        ReplayPolicy("random-ef", "plan", shuffled=True),
        *(
            ReplayPolicy(f"{name}-{machine}", kernel, order, shuffled=name == "random")
            for name, order in (("sjf", BY_RUN), ("sdf", BY_DEMAND), ("svf", BY_VOLUME), ("random", BY_SUBMIT))
            for machine, kernel in _CHOICES
        ),
        ReplayPolicy("single", "set-plan", BY_PARTS),
        ReplayPolicy("block", "set-plan", BY_BLOCK),
        ReplayPolicy("hybrid", "platform", BY_VOLUME),
        ReplayPolicy("hybrid-printed", "printed-platform", BY_VOLUME),
        ReplayPolicy("hybrid-machines", "apart", BY_VOLUME),
    )
}
"""How the kernels run each policy of the catalogue that has trace replay among its runners."""


def policy_of(name: str, runner: Runner = Runner.POOL) -> ReplayPolicy:
    """Return a policy by name or alias.

    Raises
    ------
    InputError
        When there is none, or none that runs there; lists those there are.
    """
    return POLICIES[entry_of(name, runner).name]

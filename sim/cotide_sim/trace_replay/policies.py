"""The policies a log can be replayed under, by name: which kernel, which orders, what is promised.

Called by `runner` and by the command line; names, aliases and summaries are the catalogue's.

A policy's queue order says who is first; its backfill order says who of the others is tried first. Area and volume are
the same thing on one resource: processors x forecast run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cotide_core.policies.catalogue import BY_NAME, Runner, entry_of
from cotide_sim.trace_replay.kernels.easy import BY_DEMAND, BY_RUN, BY_SUBMIT, BY_VOLUME, NO_BACKFILL
from cotide_sim.trace_replay.kernels.platform import PlatformSettings

Kernel = Literal["queue", "conservative", "slack", "plan", "platform", "printed-platform"]
PLATFORMS: Final[tuple[Kernel, ...]] = ("platform", "printed-platform")
"""Kernels that tell the predictable from others, and so always learn."""


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """One policy.

    Attributes
    ----------
    order, backfill : codes of `cotide_sim.trace_replay.kernels.easy`; backfill is read by the queue kernel only.
    platform : settings of ``hybrid``; None for the engine's.
    """

    name: str
    kernel: Kernel
    order: int = BY_SUBMIT
    backfill: int = NO_BACKFILL
    platform: PlatformSettings | None = None

    @property
    def summary(self) -> str:
        """One line of the catalogue."""
        return BY_NAME[self.name].summary


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
        ReplayPolicy("conservative", "conservative"),
        ReplayPolicy("slack", "slack"),
        ReplayPolicy("sjf", "plan", BY_RUN),
        ReplayPolicy("sdf", "plan", BY_DEMAND),
        ReplayPolicy("svf", "plan", BY_VOLUME),
        ReplayPolicy("hybrid", "platform", BY_VOLUME),
        ReplayPolicy("hybrid-printed", "printed-platform", BY_VOLUME),
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

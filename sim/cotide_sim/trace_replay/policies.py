"""The policies a log can be replayed under, by name: which kernel, which orders, what is promised.

Called by `runner` and by the command line. Invariant: a name means one thing for ever; aliases are other papers' names.

A policy's queue order says who is first; its backfill order says who of the others is tried first. Area and volume are
the same thing on one resource: processors x forecast run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cotide_core.errors import InputError
from cotide_sim.trace_replay.kernels.easy import BY_DEMAND, BY_RUN, BY_SUBMIT, BY_VOLUME, NO_BACKFILL

Kernel = Literal["queue", "conservative", "slack", "plan", "platform"]


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """One policy.

    Attributes
    ----------
    order, backfill : codes of `cotide_sim.trace_replay.kernels.easy`; backfill is read by the queue kernel only.
    """

    name: str
    summary: str
    kernel: Kernel
    order: int = BY_SUBMIT
    backfill: int = NO_BACKFILL


POLICIES: Final[dict[str, ReplayPolicy]] = {
    policy.name: policy
    for policy in (
        ReplayPolicy("fcfs", "in order of submission, nobody overtakes", "queue"),
        ReplayPolicy("sjf", "shortest forecast first, nobody overtakes", "queue", BY_RUN),
        ReplayPolicy("svf", "smallest volume first, nobody overtakes", "queue", BY_VOLUME),
        ReplayPolicy("easy", "EASY: backfill that leaves the first job's start alone", "queue", BY_SUBMIT, BY_SUBMIT),
        ReplayPolicy("easy-sjbf", "EASY, shortest tried first (FCFS-SJF)", "queue", BY_SUBMIT, BY_RUN),
        ReplayPolicy("easy-svbf", "EASY, smallest volume tried first (FCFS-SVF)", "queue", BY_SUBMIT, BY_VOLUME),
        ReplayPolicy("easy-sjf", "EASY behind a queue in order of forecast", "queue", BY_RUN, BY_RUN),
        ReplayPolicy("easy-svf", "EASY behind a queue in order of volume", "queue", BY_VOLUME, BY_VOLUME),
        ReplayPolicy("conservative", "every job is promised a start when submitted", "conservative"),
        ReplayPolicy("slack", "promises with slack, which is spent when that helps the others more", "slack"),
        ReplayPolicy("online-sjf", "plan anew at each event, shortest first", "plan", BY_RUN),
        ReplayPolicy("online-sdf", "plan anew at each event, smallest demand first", "plan", BY_DEMAND),
        ReplayPolicy("online-svf", "plan anew at each event, smallest volume first", "plan", BY_VOLUME),
        ReplayPolicy("hybrid", "plans the predictable on a share, backfills the rest", "platform", BY_VOLUME),
    )
}
"""The policies by name (Naghshnejad 2019, sections 3.2 and 4.2.1)."""

ALIASES: Final[dict[str, str]] = {
    "fcfs-sjf": "easy-sjbf",
    "fcfs-svf": "easy-svbf",
    "easy-sabf": "easy-svbf",
    "sjf-plan": "online-sjf",
    "svf-plan": "online-svf",
    # One pool leaves a rule for the machine nothing to choose.
    **{
        f"{order}-{machine}": f"online-{order}" for order in ("sjf", "sdf", "svf") for machine in ("ef", "lw", "random")
    },
}
"""Other names of the same policies."""


def policy_of(name: str) -> ReplayPolicy:
    """Return a policy by name or alias.

    Raises
    ------
    InputError
        When there is none; lists those there are.
    """
    wanted = name.strip().lower()
    policy = POLICIES.get(ALIASES.get(wanted, wanted))
    if policy is None:
        raise InputError(f"there is no {name!r}; there are {', '.join(POLICIES)}", field="policy")
    return policy

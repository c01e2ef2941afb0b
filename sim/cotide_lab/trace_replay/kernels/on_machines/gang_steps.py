"""Steps that rules on machines have in common: what is booked when a job outlives its forecast, ends or is submitted,
and the reservations of one round.

Called by the kernels for gangs, as their steps or out of them. A rule is any tuple with the fields that a step reads.
Invariant: what `forecast_exceeded` and a start book, `ended` gives back; a round drops all the reservations that it
made.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import inlined
from cotide_lab.trace_replay.kernels.easy import enqueue
from cotide_lab.trace_replay.kernels.on_machines.gang_counts import Fitting, gained
from cotide_lab.trace_replay.kernels.on_machines.gang_lists import (
    Held,
    Holding,
    begin_lists,
    book_gang,
    take_now,
    tidy_machines,
)
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs
from cotide_lab.trace_replay.kernels.replay_state import SPARE, WAITING, Jobs, ReplayState

RESERVED: Final = SPARE + 6
"""Index of the number of reservations of this round."""


class OnMachines(Protocol):
    """A rule with profiles of its machines."""

    @property
    def gangs(self) -> Gangs:
        """What jobs ask for."""

    @property
    def holding(self) -> Holding:
        """What they hold or have reserved."""


class WithPresent(OnMachines, Protocol):
    """A rule that keeps counts with its profiles."""

    @property
    def present(self) -> Fitting:
        """What is free now."""


class InOrder(OnMachines, Protocol):
    """A rule with an ordered list of waiting jobs."""

    @property
    def order(self) -> int:
        """One of those of `easy`."""


class WithReservations(OnMachines, Protocol):
    """A rule that makes its reservations again in each round."""

    @property
    def reserved(self) -> Integers:
        """(3, n) jobs reserved in this round, their starts, and the seconds that they are planned to take."""


MachineRule = TypeVar("MachineRule", bound=OnMachines)
PresentRule = TypeVar("PresentRule", bound=WithPresent)
OrderedRule = TypeVar("OrderedRule", bound=InOrder)


@inlined
def prepare(jobs: Jobs, state: ReplayState, rule: MachineRule) -> MachineRule:
    """Begin with empty machines."""
    begin_lists(rule.gangs, state, rule.holding.held)
    return rule


@inlined
def forecast_exceeded(now: int, job: int, jobs: Jobs, state: ReplayState, rule: MachineRule) -> MachineRule:
    """Book what a job that runs on is planned to hold from now on."""
    book_gang(now, now, state.planned_end[job], job, rule.gangs, state, rule.holding, 1)
    return rule


@inlined
def give_back_planned(now: int, job: int, state: ReplayState, rule: OnMachines) -> bool:
    """Give back what a job that has ended was planned to hold from now on; return whether that was anything."""
    early: bool = state.planned_end[job] > now
    if early:
        book_gang(now, now, state.planned_end[job], job, rule.gangs, state, rule.holding, -1)
    return early


@inlined
def give_back_now(job: int, gangs: Gangs, held: Held, present: Fitting) -> None:
    """Count what a job that has ended held as free now."""
    take_now(job, -1, gangs, held, present)
    gained(present)


@inlined
def ended(now: int, job: int, jobs: Jobs, state: ReplayState, rule: PresentRule) -> PresentRule:
    """Give back what a job held, and what it was planned to hold."""
    give_back_now(job, rule.gangs, rule.holding.held, rule.present)
    give_back_planned(now, job, state, rule)
    return rule


@inlined
def begin_waiting(job: int, jobs: Jobs, held: Held) -> None:
    """Let a submitted job hold nothing; nothing is promised to it."""
    jobs.promise[job] = -1
    held.used[job] = 0


@inlined
def submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: OrderedRule) -> OrderedRule:
    """Put a job into the rule's order."""
    begin_waiting(job, jobs, rule.holding.held)
    state.counts[WAITING] = enqueue(0, rule.order, job, jobs, state)
    return rule


@inlined
def note_reservation(begin: int, length: int, job: int, state: ReplayState, rule: WithReservations) -> None:
    """Note what was booked for a job that can't start now, so that the round drops it."""
    made = state.counts[RESERVED]
    rule.reserved[0, made] = job
    rule.reserved[1, made] = begin
    rule.reserved[2, made] = length
    state.counts[RESERVED] = made + 1


@inlined
def drop_reservations(now: int, forgotten: bool, state: ReplayState, rule: WithReservations) -> None:
    """Drop the reservations of this round, and the seams that they leave in the profiles.

    Parameters
    ----------
    forgotten : whether the next round chooses the jobs' machines again.
    """
    for at in range(state.counts[RESERVED]):
        job, begin = rule.reserved[0, at], rule.reserved[1, at]
        book_gang(now, begin, begin + rule.reserved[2, at], job, rule.gangs, state, rule.holding, -1)
        if forgotten:
            rule.holding.held.used[job] = 0
    if state.counts[RESERVED] > 0:
        tidy_machines(now, state, rule.holding)

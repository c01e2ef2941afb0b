"""`cotide simulate --machines`: the machines for a trace's jobs, and the replay on them.

Called by `simulate_command`. Invariant: every schedule has passed the check of machines before it is returned; skipped
jobs and jobs that fit no machine are reported with file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_core.errors import CotideError, InputError
from cotide_core.units import counted
from cotide_lab.commands.simulate_output import progress_bar

if TYPE_CHECKING:
    from cotide_lab.inputs.trace_input import Input
    from cotide_lab.trace_replay.machine_jobs import MachineJobs
    from cotide_lab.trace_replay.policies import ReplayPolicy
    from cotide_lab.trace_replay.runner import Runtime, Schedule
    from cotide_lab.trace_replay.user_policy import UserPolicy
    from cotide_sim.traces.jobs.machines import Machines


def check_machine_options(
    machines: str | None, capacity: str | None, trace: Path | None, processors: int | None, resources: str
) -> None:
    """Refuse options that contradict each other.

    Raises
    ------
    InputError
        Names the option.
    """
    if machines is None:
        if capacity is not None:
            raise InputError("is for --machines N", field="--machine-capacity")
        return
    if trace is None:
        raise InputError("is for --trace; generated jobs know one pool", field="--machines")
    if processors is not None:
        raise InputError("is the size of one pool; with --machines there is none", field="--processors")
    if resources != "cpu":
        raise InputError("is for one pool; with --machines all resources count", field="--resources")
    if capacity is not None and not machines.isdigit():
        raise InputError("is for a number of machines, --machines N", field="--machine-capacity")


def on_machines(given: Input, which: str, capacity: str | None, *, skip: bool) -> Input:
    """Return the jobs with the machines that ``which`` names, and report the machines on stderr.

    Raises
    ------
    InputError
        When the trace has no machines, a machine file is broken, or a job fits none of them.
    """
    from cotide_lab.trace_replay.machine_jobs import machine_jobs_of
    from cotide_sim.traces.jobs.machines import RESOURCES

    trace = given.trace
    if trace is None or not trace.asked:
        raise InputError(
            f"a trace of format {given.format} names no resources of machines; {' and '.join(RESOURCES)} do",
            field="--machines",
        )
    machines = _machines(trace.format, Path(trace.log.file), which, capacity)
    found = machine_jobs_of(trace, given.jobs, machines, skip=skip, rows=given.rows_of_jobs)
    if found.dropped:
        click.echo(
            f"{trace.log.file}: {counted(found.dropped, 'job')} left out: too large for any machine, even empty",
            err=True,
        )
    names = [f"{name} ({what})" for name, (_, what) in RESOURCES[trace.format].items()]
    conversion = f"{machines.source}; {', '.join(names)} of each counted; a processor in files is a millicore"
    click.echo(f"{trace.log.file}: {conversion}", err=True)
    return replace(given, jobs=found.jobs, conversion=conversion, machine_jobs=found)


def _machines(form: str, trace: Path, which: str, capacity: str | None) -> Machines:
    from cotide_sim.traces.jobs.machines import COUNT_MAX, alike, beside, read_machines

    if which == "trace":
        return beside(form, trace)
    if not which.isdigit():
        return read_machines(form, Path(which))
    count = int(which)
    if not 1 <= count <= COUNT_MAX:
        raise InputError(f"{count} is not between 1 and {COUNT_MAX:,}", field="--machines")
    if capacity is None:
        return beside(form, trace).spread(count)
    return alike(form, count, _amounts(capacity))


def _amounts(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, amount = part.strip().partition("=")
        try:
            value = float(amount)
        except ValueError:
            raise InputError(f"{part.strip()!r} is not like cpu=64", field="--machine-capacity") from None
        if not 0 <= value < 1e9:
            raise InputError(f"{part.strip()!r} is no amount from 0 to 1e9", field="--machine-capacity")
        found[name] = value
    return found


def replay_on_machines(
    found: MachineJobs, policies: Sequence[ReplayPolicy | UserPolicy], runtime: Runtime, seed: int
) -> list[Schedule]:
    """Run the policies one after another; a schedule that fails its check is a programming error and ends the command.

    Raises
    ------
    InputError
        When a policy supports one pool only.
    """
    from cotide_lab.trace_replay.machine_runner import machine_faults_of, run_on_machines
    from cotide_lab.trace_replay.user_policy import UserPolicy

    schedules = []
    with progress_bar(len(found) * len(policies), slow=True) as emit:
        for index, policy in enumerate(policies):
            if isinstance(policy, UserPolicy):
                raise InputError(f"{policy.name} is from a file, which knows one pool only", field="policy")
            watch = None if emit is None else partial(_report_progress, emit, index * len(found), policy.name)
            placement = run_on_machines(found, policy, runtime, seed=seed, watch=watch)
            faults = machine_faults_of(found, placement)
            if faults:
                raise CotideError(f"the schedule of {policy.name} failed its check, please report this: {faults[0]}")
            schedules.append(placement.schedule)
    return schedules


def _report_progress(emit: Callable[[int, str], None], before: int, name: str, done: int) -> None:
    emit(before + done, name)

"""`cotide simulate`: a batch log under several policies, side by side.

Called by `main`. Data on stdout, what was done to the log's rows and the progress on stderr. Invariant: every
schedule has passed the feasibility check before a figure of it is printed; apart from wall times, equal arguments
give equal output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cotide_cli.inputs.checked_types import SEED, check_output
from cotide_cli.inputs.finite_range import FiniteRange
from cotide_cli.option_groups import GroupedCommand, grouped, option_group
from cotide_cli.printing import as_text, output_option
from cotide_core.config import FAIR_HALF_LIFE_SECONDS
from cotide_core.errors import CotideError, InputError
from cotide_core.policies.catalogue import Runner
from cotide_core.policies.catalogue import names as names_of
from cotide_lab.commands.machine_input import check_machine_options, on_machines, replay_on_machines
from cotide_lab.commands.simulate_output import document, print_table, progress_bar
from cotide_lab.inputs.row_options import RowOptions, row_options
from cotide_lab.inputs.trace_input import FORMATS, GENERATORS, from_file, from_generator
from cotide_sim.pages.origin import made

if TYPE_CHECKING:
    from cotide_lab.inputs.trace_input import Input
    from cotide_lab.trace_replay.policies import ReplayPolicy
    from cotide_lab.trace_replay.runner import Reliability, Runtime, Schedule
    from cotide_lab.trace_replay.user_policy import UserPolicy
    from cotide_sim.traces.jobs.batch_jobs import BatchJobs

DEFAULT_POLICIES: Final = "fcfs,easy,easy-sjbf,conservative"
DEFAULT_JOBS: Final = 10_000
RUNTIMES: Final = (
    "request", "clairvoyant", "last-two", "learned", "trees",
    "exponential-smoothing", "regression", "fmkf", "mlkf", "mdn",
)  # fmt: skip
"""Those of `cotide_lab.trace_replay.runner`, which takes too long to load for a help text; a test holds them equal."""
SLOW: Final = ("trees", "mdn", "fmkf", "mlkf", "regression")
"""Sources of run times that are worth a progress bar on any log."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Where jobs come from."""

    trace: Path | None
    form: Any
    generate: Any
    count: int | None
    load: float | None
    seed: int


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What decides, and what it believes of run times."""

    policies: str
    policy_files: tuple[str, ...]
    runtime: Runtime
    reliability: Reliability
    rebuild_days: int
    shares_of: Any
    fair_half_life: float


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """What the jobs run on."""

    machines: str | None
    machine_capacity: str | None
    processors: int | None
    resources: Any


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Files that are written in addition to the table."""

    report: Path | None
    swf_directory: Path | None
    swf_file: Path | None


@click.command("simulate", cls=GroupedCommand)
@option_group(
    "Jobs",
    "source",
    JobOptions,
    grouped(
        "--trace",
        type=click.Path(path_type=Path),
        help="Jobs to replay: a log in the Standard Workload Format, a public trace, or a recorded ledger; plain or "
        "gzip.",
    ),
    grouped("--format", "form", type=click.Choice(FORMATS), help="Of the trace; default: what its content shows."),
    grouped("--generate", type=click.Choice(GENERATORS), help="Generate jobs instead of reading a trace."),
    grouped("--jobs", "count", type=click.IntRange(min=1), help=f"How many to generate; default: {DEFAULT_JOBS}."),
    grouped("--load", type=float, help="Share of the machine that generated jobs fill; default: the generator's."),
    grouped(
        "--seed",
        type=SEED,
        default=0,
        show_default=True,
        help="Of generated jobs, trees, drawn weeks, drawn machines and drawn orders.",
    ),
)
@option_group(
    "Policies",
    "rules",
    PolicyOptions,
    grouped(
        "--policy",
        "policies",
        default=DEFAULT_POLICIES,
        show_default=True,
        metavar="NAME,NAME,...",
        help=f"Of {', '.join(names_of(Runner.POOL))}; or files like ./my_policy.py:NAME. With --machines of "
        f"{', '.join(names_of(Runner.MACHINES))}.",
    ),
    grouped(
        "--policy-file",
        "policy_files",
        multiple=True,
        metavar="FILE[:NAME]",
        help="Replay under a policy of your own, next to the others; repeatable. "
        "docs/research/write-a-policy.md describes what it must define.",
    ),
    grouped(
        "--runtime",
        type=click.Choice(RUNTIMES),
        default="request",
        show_default=True,
        help="Run times that policies assume; hybrid always learns, unless clairvoyant. Trees and mdn take minutes "
        "a log.",
    ),
    grouped(
        "--reliability",
        type=click.Choice(["mixture", "trees", "nobody", "everybody"]),
        default="mixture",
        show_default=True,
        help="Which forecasts hybrid trusts: by the forecast's own mixture, or by boosted trees; or all jobs alike.",
    ),
    grouped(
        "--rebuild-days",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Days of the log between two rebuilds of trees, or refits of mdn's network; the thesis has one.",
    ),
    grouped(
        "--shares-of",
        type=click.Choice(["user", "group"]),
        default="user",
        show_default=True,
        help="Owners of the shares that fair keeps; they represent a cluster's namespaces.",
    ),
    grouped(
        "--fair-half-life",
        type=FiniteRange(min=1.0),
        default=FAIR_HALF_LIFE_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="Time after which past usage counts half under fair.",
    ),
)
@option_group(
    "Machines",
    "machine",
    MachineOptions,
    grouped(
        "--machines",
        metavar="trace|N|FILE",
        help="Many machines and all resources in place of one pool: the file next to the trace, N of those, or a file.",
    ),
    grouped(
        "--machine-capacity",
        metavar="cpu=C,memory=M,gpu=G",
        help="Of each of the N machines: cores, memory (GiB; Alibaba 2017: share of the largest machine's), GPUs.",
    ),
    grouped("--processors", type=click.IntRange(min=1), help="Size of the machine; default: the trace's."),
    grouped(
        "--resources",
        type=click.Choice(["cpu", "dominant"]),
        default="cpu",
        show_default=True,
        help="What makes a job's processors where it asks for several resources: cpu, or its largest share.",
    ),
)
@row_options
@option_group(
    "Files to write",
    "files",
    FileOptions,
    grouped("--report", type=click.Path(path_type=Path), help="Write an HTML report that needs no other file."),
    grouped("--swf", "swf_directory", type=click.Path(path_type=Path), help="Directory for schedules as SWF files."),
    grouped("--write-swf", "swf_file", type=click.Path(path_type=Path), help="File for the jobs themselves, as SWF."),
)
@output_option
def command(
    source: JobOptions,
    rules: PolicyOptions,
    machine: MachineOptions,
    rows: RowOptions,
    files: FileOptions,
    output: str,
) -> None:
    """Replay a batch log under policies: waiting, slowdown, stretch, response and utilisation, side by side."""
    from cotide_lab.trace_replay.metrics import figures_of

    _check_outputs(files)
    chosen = _policies(rules, Runner.POOL if machine.machines is None else Runner.MACHINES)
    _check_source(source)
    check_machine_options(
        machine.machines, machine.machine_capacity, source.trace, machine.processors, machine.resources
    )
    given = _jobs(source, machine, rows)
    jobs = given.jobs
    if files.swf_file is not None:
        _write_jobs(files.swf_file, given)
    if given.machine_jobs is not None:
        schedules = replay_on_machines(given.machine_jobs, chosen, rules.runtime, source.seed)
    else:
        schedules = _replay(jobs, chosen, rules, source.seed)
    figures = {schedule.policy: figures_of(jobs, schedule.start, seed=source.seed) for schedule in schedules}
    if output != "table":
        click.echo(as_text(document(given, rules.runtime, source.seed, schedules, figures), output))
    else:
        print_table(given, rules.runtime, schedules, figures)
    if files.report is not None:
        from cotide_lab.trace_replay.report import write_report

        summaries = {policy.name: policy.summary for policy in chosen}
        write_report(files.report, jobs, given.described, schedules, figures, made(), summaries)
        click.echo(f"report: {files.report}", err=True)
    if files.swf_directory is not None:
        _write_schedules(files.swf_directory, jobs, schedules)


def _jobs(source: JobOptions, machine: MachineOptions, rows: RowOptions) -> Input:
    """Read and clean the trace, or generate jobs; with their machines where jobs are replayed on machines."""
    if source.trace is None:
        count = source.count or DEFAULT_JOBS
        return from_generator(source.generate, count, source.load, machine.processors, source.seed)
    cleaning = rows.cleaning(machine.processors)
    given = from_file(source.trace, source.form, machine.resources, rows.on_bad, cleaning)
    if machine.machines is None:
        return given
    return on_machines(given, machine.machines, machine.machine_capacity, skip=rows.on_bad == "skip")


def _check_outputs(files: FileOptions) -> None:
    """Refuse a report and schedules that can't be written, before anything is replayed."""
    report, schedules = files.report, files.swf_directory
    if report is not None:
        check_output(report, "--report")
    if schedules is not None and schedules.exists() and not schedules.is_dir():
        raise InputError(f"{schedules} is a file; name a folder", field="--swf")


def _policies(rules: PolicyOptions, runner: Runner) -> list[ReplayPolicy | UserPolicy]:
    from cotide_lab.trace_replay.policies import policy_of
    from cotide_lab.trace_replay.user_policy import is_policy_file, load_policy

    found: dict[str, ReplayPolicy | UserPolicy] = {}
    sources: dict[str, str] = {}
    for name in [*(part.strip() for part in rules.policies.split(",") if part.strip()), *rules.policy_files]:
        policy: ReplayPolicy | UserPolicy
        if name in rules.policy_files or is_policy_file(name):
            policy = load_policy(name)
            source = str(policy.file)
        else:
            policy, source = policy_of(name, runner), ""
        if sources.setdefault(policy.name, source) != source:
            raise InputError(f"two policies are named {policy.name}; rename a file", field="policy")
        found[policy.name] = _with_shares(policy, rules)
    if not found:
        raise InputError("names no policy", field="policy")
    return list(found.values())


def _with_shares(policy: ReplayPolicy | UserPolicy, rules: PolicyOptions) -> ReplayPolicy | UserPolicy:
    from cotide_lab.trace_replay.policies import ReplayPolicy

    if not isinstance(policy, ReplayPolicy):
        return policy
    return replace(policy, owners=rules.shares_of, half_life_seconds=rules.fair_half_life)


def _check_source(source: JobOptions) -> None:
    if (source.trace is None) == (source.generate is None):
        raise InputError("name a trace with --trace or a generator with --generate, one of the two", field="--trace")
    for option, value in (("--jobs", source.count), ("--load", source.load)):
        if source.trace is not None and value is not None:
            raise InputError("is for --generate; a trace has its own jobs", field=option)


def _replay(
    jobs: BatchJobs, policies: Sequence[ReplayPolicy | UserPolicy], rules: PolicyOptions, seed: int
) -> list[Schedule]:
    """Run the policies one after another; a schedule that fails its check is a fault of ours and ends the command."""
    from cotide_core.kernels.compiled import when_compiling
    from cotide_lab.predictors.run_time.boosted import DAY_SECONDS
    from cotide_lab.trace_replay.check import faults_of
    from cotide_lab.trace_replay.runner import run_policy
    from cotide_lab.trace_replay.user_policy import UserPolicy
    from cotide_lab.trace_replay.user_replay import run_user_policy

    schedules, pause, runtime = [], rules.rebuild_days * DAY_SECONDS, rules.runtime
    slow = runtime in SLOW or rules.reliability == "trees"
    with progress_bar(len(jobs) * len(policies), slow=slow) as emit:
        when_compiling(partial(_say_compiling, emit))
        for number, policy in enumerate(policies):
            watch = None if emit is None else partial(_report_progress, emit, number * len(jobs), policy.name)
            if isinstance(policy, UserPolicy):
                schedule = run_user_policy(jobs, policy, runtime, seed=seed, rebuild_seconds=pause, watch=watch)
            else:
                schedule = run_policy(
                    jobs, policy, runtime, reliability=rules.reliability, seed=seed, rebuild_seconds=pause, watch=watch
                )
            faults = faults_of(jobs, schedule)
            if faults:
                raise CotideError(f"the schedule of {policy.name} failed its check, please report this: {faults[0]}")
            schedules.append(schedule)
    return schedules


def _say_compiling(emit: Callable[[int, str], None] | None) -> None:
    words = "compiling kernels, once for this installation"
    if emit is not None:
        emit(0, words)
    elif sys.stderr.isatty():
        click.echo(f"{words} ...", err=True)


def _report_progress(emit: Callable[[int, str], None], before: int, name: str, done: int) -> None:
    emit(before + done, name)


def _write_jobs(file: Path, given: Input) -> None:
    from cotide_sim.traces.jobs.swf_write import log_of_jobs, write_swf

    write_swf(log_of_jobs(given.jobs, f"{given.jobs.name}: {given.described}"), file)
    click.echo(f"jobs: {file}", err=True)


def _write_schedules(directory: Path, jobs: BatchJobs, schedules: list[Schedule]) -> None:
    from cotide_sim.traces.jobs.swf_write import log_of_schedule, write_swf

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"can't be made: {error.strerror or error}", file=str(directory)) from error
    for schedule in schedules:
        note = f"replayed by cotide under {schedule.policy}, run times as {schedule.runtime}"
        write_swf(log_of_schedule(jobs, schedule.start, note), directory / f"{schedule.policy}.swf")
        click.echo(f"schedule: {directory / schedule.policy}.swf", err=True)

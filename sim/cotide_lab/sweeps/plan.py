"""What a sweep is to run: sources from files and generators, and the cells of policies x run times x seeds on them.

Called by `cotide sweep`. First step of the flow. Invariant: the same files and options give the same cells in the same
order; a name in a table stands for one trace only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_files.bounded_text import checksum_of
from cotide_lab.job_logs.generated_log import OVERESTIMATE_MAX, USERS, Generator, generated_log
from cotide_lab.sweeps.cells import Cell, LogSource, Source, SyntheticSource
from cotide_lab.sweeps.execution import Task
from cotide_lab.sweeps.weeks import WHOLE_WEEKS_MIN, whole_weeks
from cotide_lab.trace_replay.policies import policy_of
from cotide_lab.trace_replay.runner import Runtime
from cotide_lab.trace_replay.user_policy import PolicySource, is_policy_file, policy_of_source, read_policy
from cotide_sim.traces.jobs.any_log import Format, JobTrace, content_of, read_any_log
from cotide_sim.traces.jobs.pool import Demand
from cotide_sim.traces.jobs.swf import OnBad
from cotide_sim.traces.jobs.swf_cleaning import Cleaning, CleaningReport, clean

DEFAULT_SEED: Final = 0
"""The seed of a generator when none is named."""
MAX_SEEDS: Final = 100_000
"""More draws than any interval needs; chosen, so that a typing error is reported at once."""


def parse_seeds(text: str) -> tuple[int | None, ...]:
    """Read ``log,1-20,25``: ``log`` (None) is the log as it is, numbers are seeds; sorted, none twice.

    Raises
    ------
    InputError
        At a part that is neither, and when they are more than `MAX_SEEDS`.
    """
    found: set[int | None] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first == "log" and not dash:
            found.add(None)
        elif first.isdecimal() and (last.isdecimal() or not dash) and int(last or first) >= int(first):
            if int(last or first) - int(first) >= MAX_SEEDS - len(found):
                raise InputError(f"{text!r} are more than {MAX_SEEDS:,} seeds", field="--seeds")
            found.update(range(int(first), int(last or first) + 1))
        else:
            raise InputError(f"{part.strip()!r} is no seed; write for example 'log,1-20'", field="--seeds")
    return tuple(sorted(found, key=lambda seed: -1 if seed is None else seed))


def log_source(
    path: Path,
    cleaning: Cleaning,
    on_bad: OnBad,
    weeks: int | None,
    *,
    form: Format | None = None,
    demand: Demand = "cpu",
) -> tuple[LogSource, JobTrace, CleaningReport]:
    """Read a trace in any format; the name in tables is the file's, without its directory.

    Raises
    ------
    InputError
        At what can't be read, or is refused by the cleaning.
    """
    if path.exists() and not content_of(path).is_file():  # its checksum, read after it, would be that of nothing
        words = "is no file: a sweep knows its traces by their checksums, so write it to a file"
        raise InputError(words, file=str(path))
    trace = read_any_log(path, form=form, on_bad=on_bad, demand=demand)
    if not trace.in_order:
        cleaning = cleaning.of_a_table()
    jobs, report = clean(trace.log, cleaning)
    digest = checksum_of(content_of(path))
    settings = f"{jobs.processors} processors; broken rows {on_bad}; {cleaning.describe()}"
    if trace.conversion:
        settings += f"; {trace.conversion}"
    columns = np.stack([jobs.submit, jobs.run, jobs.demand, jobs.request, jobs.user])
    return LogSource(path.name, digest, settings, jobs.processors, columns, weeks), trace, report


def synthetic_source(kind: Generator, count: int, load: float) -> SyntheticSource:
    """Describe a generator; its checksum covers its output for seed 0, so that a changed generator is another one."""
    name = f"{kind}-{count}-load-{load:g}"
    jobs = generated_log(name, kind, count, load, DEFAULT_SEED)
    digest = hashlib.sha256(np.stack([jobs.submit, jobs.run, jobs.demand, jobs.request, jobs.user]).tobytes())
    arrivals = "the model's arrivals" if kind == "lublin" else "Poisson arrivals"
    settings = f"{jobs.processors} processors; {arrivals}; requests to {OVERESTIMATE_MAX:g} x; {USERS} users"
    return SyntheticSource(name, digest.hexdigest(), settings, kind, count, load)


def tasks_of(
    sources: Sequence[Source],
    policies: Sequence[str | PolicySource],
    runtimes: Sequence[Runtime],
    seeds: Sequence[int | None] | None,
) -> list[Task]:
    """Return every cell with its log.

    Parameters
    ----------
    policies : by name, or read from a file.
    seeds : None stands for a log as it is, and for a generator's seed 0.

    Raises
    ------
    InputError
        When two traces have one name, a generator is asked for its log, or a log is too short to draw weeks from.
    """
    names = [source.trace for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is given twice; a name stands for one trace in the results", field="--trace")
    tasks: list[Task] = []
    for source in sources:
        chosen = _seeds_for(source, seeds)
        tasks += [
            (_cell(source, runtime, policy, seed), source)
            for seed in chosen
            for runtime in runtimes
            for policy in policies
        ]
    return tasks


def _cell(source: Source, runtime: Runtime, policy: str | PolicySource, seed: int | None) -> Cell:
    name, digest = (policy, None) if isinstance(policy, str) else (policy.name, policy.sha256)
    return Cell(source.trace, source.trace_sha256, _settings(source, seed), runtime, name, seed, digest)


def policies_of(names: Sequence[str], files: Sequence[str]) -> list[str | PolicySource]:
    """Return policies by name, and those from files: read, and run once to see that they define what they should.

    Raises
    ------
    InputError
        At an unknown name, a file that can't be read or run, and two files of one name.
    """
    found: dict[str, str | PolicySource] = {}
    for given in [*names, *files]:
        policy: str | PolicySource
        if given in files or is_policy_file(given):
            policy = source = read_policy(given)
            policy_of_source(source).begin()
            name = source.name
        else:
            policy = name = policy_of(given).name
        if found.setdefault(name, policy) != policy:
            raise InputError(f"two policies are named {name}; rename a file", field="--policy")
    return list(found.values())


def _seeds_for(source: Source, seeds: Sequence[int | None] | None) -> Sequence[int | None]:
    if isinstance(source, SyntheticSource):
        chosen: Sequence[int | None] = [DEFAULT_SEED] if seeds is None else [seed for seed in seeds if seed is not None]
        if not chosen:
            raise InputError(f"'log' is for trace files; {source.trace} needs numbers", field="--seeds")
        return chosen
    if seeds is not None and any(seed is not None for seed in seeds):
        available = whole_weeks(source.jobs())
        if available < WHOLE_WEEKS_MIN:
            raise InputError(
                f"{source.trace} spans {available} whole weeks; to draw weeks takes {WHOLE_WEEKS_MIN}", field="--seeds"
            )
    return [None] if seeds is None else seeds


def _settings(source: Source, seed: int | None) -> str:
    if seed is None or isinstance(source, SyntheticSource):
        return source.settings
    weeks = "as many" if source.weeks is None else source.weeks
    return f"{source.settings}; {weeks} weeks drawn with replacement"

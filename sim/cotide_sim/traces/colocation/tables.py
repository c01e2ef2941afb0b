"""Reader of the measured co-location tables: memcached with antagonists, PARSEC jobs and a batch grid.

Called by `cotide train` and `cotide evaluate` (as samples) and by the measured interference model (as raw
tables). First step of the flow: files to core values. Invariant: one sample for each measured row; what was
not measured and had to be chosen (cpu pressure, what a censored row counts as) is written in a constant here.

Sources: course measurements on cloud VMs (lorenzo-asquini/Cloud-Computing-Architecture-Project) and a grid
measured for this project; both are read from a directory that the user names.

The rate of a sample is the *offered* one (column ``target``): the achieved rate of a starved service is part of
the outcome, and a scheduler asks about the rate that will come.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np

from cotide_core.errors import InputError
from cotide_core.forecasts import CompletionSamples, MixBatch, QosSamples
from cotide_core.kernels.array_types import Floats
from cotide_files.columns import Table, read_table

QosTable = Literal["grid", "grid-once", "antagonists", "parsec", "all"]
CompletionTable = Literal["grid", "parsec", "all"]
QOS_TABLES: Final[tuple[str, ...]] = get_args(QosTable)
COMPLETION_TABLES: Final[tuple[str, ...]] = get_args(CompletionTable)

GRID: Final = "memcached_batch_grid.csv"
ANTAGONISTS: Final = "memcached_latency_vs_qps_by_interference.csv"
DYNAMIC: Final = "memcached_dynamic_load_with_batch.csv"
EVENTS: Final = "batch_job_events_dynamic_load.csv"
STATIC: Final = "static_coschedule_30kqps.csv"
RUNTIMES: Final = "parsec_runtime_by_interference_threads.csv"

GRID_PRESSURE: Final = 0.25
"""The grid's job had 256 cpu shares on one core of 1024, as if it requested 250m of 1000m (its README)."""
ANTAGONIST_PRESSURE: Final = 1.0
"""An antagonist keeps one core busy, and its service runs on one core (chosen)."""
PARSEC_CORES: Final = 4
"""Cores of the machine of the dynamic runs: the event log names cores 0 to 3."""
DEFAULT_LIMIT_MILLISECONDS: Final = 10.0
"""The limit noted with each sample, the paper's 10 ms (Ou 2024, section 3.1); training relabels for others."""
NO_JOB: Final = "none"


def read_grid(directory: Path) -> Table:
    """Return the 546 measured rows of the batch grid (columns and caveats in its README)."""
    return read_table(
        directory / GRID,
        texts=("workload_type",),
        numbers=("input_size_bytes", "rps_target", "rps_achieved", "p95_us", "repetition"),
        optional=(
            "censored", "completion_seconds", "completion_est_seconds", "completion_alone_seconds",
            "p95_once10_derived_us", "alone_cpu_seconds", "job_cpu_share", "memcached_cpu_share",
        ),
    )  # fmt: skip


def read_antagonists(directory: Path) -> Table:
    """Return p95 latency by antagonist and offered rate, three repetitions of each."""
    return read_table(
        directory / ANTAGONISTS, texts=("interference",), numbers=("rep", "avg_us", "p95_us", "QPS", "target")
    )


def read_runtimes(directory: Path) -> Table:
    """Return PARSEC run times in seconds, by antagonist (one thread) and by threads (alone)."""
    return read_table(
        directory / RUNTIMES, texts=("benchmark", "interference", "input"), numbers=("threads", "real_s", "user_s")
    )


def read_static_mixes(directory: Path) -> Table:
    """Return jobs and latency intervals at 30,000 requests/s; ``kind`` distinguishes them, times are epoch ms."""
    return read_table(
        directory / STATIC, texts=("run", "kind"), numbers=("start_ms", "end_ms"), optional=("p95_us", "QPS", "target")
    )


def read_dynamic_mixes(directory: Path) -> Table:
    """Return latency by interval of the runs with changing load."""
    return read_table(
        directory / DYNAMIC,
        texts=("experiment", "run"),
        numbers=("interval", "run_start_ms", "run_end_ms", "n_intervals", "p95_us", "QPS", "target"),
    )


def read_job_events(directory: Path) -> Table:
    """Return the job log of the dynamic runs: start, pause, unpause, end, with cores in ``args``."""
    return read_table(directory / EVENTS, texts=("experiment", "run", "iso_time", "event", "job", "args"))


def qos_samples(directory: Path, table: QosTable = "all") -> QosSamples:
    """Read one table (or all but ``grid-once``) as samples of mixes and their p95 latency.

    ``grid`` takes the latency while a job of the type is running; ``grid-once`` the derived p95 over ten seconds with
    one run of the job, where the input size matters.
    """
    readers = {
        "grid": lambda: _grid_qos(directory, "p95_us"),
        "grid-once": lambda: _grid_qos(directory, "p95_once10_derived_us"),
        "antagonists": lambda: _antagonist_qos(directory),
        "parsec": lambda: concatenate_qos((_dynamic_qos(directory), _static_qos(directory))),
    }
    if table == "all":
        return concatenate_qos([readers[name]() for name in ("grid", "antagonists", "parsec")])
    return readers[table]()


def completion_samples(directory: Path, table: CompletionTable = "all", *, lone_runs: bool = True) -> CompletionSamples:
    """Read run times with a rate (grid) or with an antagonist (parsec) as samples.

    A censored row of the grid (the job was killed after 12 s) counts with ``completion_est_seconds``, its lone
    cpu seconds over the cpu share that it had. ``lone_runs`` adds the grid's one run of each type and size with an idle
    service, as a sample at rate 0.
    """
    parts = []
    if table in ("grid", "all"):
        parts.append(_grid_completion(read_grid(directory), lone_runs))
    if table in ("parsec", "all"):
        parts.append(_parsec_completion(read_runtimes(directory)))
    return CompletionSamples(
        types=tuple(name for part in parts for name in part.types),
        input_bytes=np.concatenate([part.input_bytes for part in parts]),
        requests_per_second=np.concatenate([part.requests_per_second for part in parts]),
        cpu_pressure=np.concatenate([part.cpu_pressure for part in parts]),
        seconds=np.concatenate([part.seconds for part in parts]),
    )


def concatenate_qos(parts: Sequence[QosSamples]) -> QosSamples:
    """Join samples whose mixes may name different types and services; names become the sorted union."""
    types = tuple(sorted({name for part in parts for name in part.mixes.types}))
    services = tuple(sorted({name for part in parts for name in part.mixes.services}))
    counts, sizes, service = [], [], []
    for part in parts:
        known = np.array([services.index(name) for name in part.mixes.services], np.int64)
        service.append(known[np.zeros(len(part.mixes), np.int64) if part.mixes.service is None else part.mixes.service])
        columns = [types.index(name) for name in part.mixes.types]
        wide_counts, wide_sizes = np.zeros((2, len(part.mixes), len(types)))
        wide_counts[:, columns] = part.mixes.counts
        wide_sizes[:, columns] = part.mixes.input_bytes
        counts.append(wide_counts)
        sizes.append(wide_sizes)
    return QosSamples(
        MixBatch(
            requests_per_second=np.concatenate([part.mixes.requests_per_second for part in parts]),
            other_requests_per_second=np.concatenate([part.mixes.other_requests_per_second for part in parts]),
            limit_milliseconds=np.concatenate([part.mixes.limit_milliseconds for part in parts]),
            cpu_pressure=np.concatenate([part.mixes.cpu_pressure for part in parts]),
            types=types,
            counts=np.concatenate(counts),
            input_bytes=np.concatenate(sizes),
            services=services,
            service=np.concatenate(service),
        ),
        np.concatenate([part.latency_milliseconds for part in parts]),
    )


def _grid_qos(directory: Path, latency_column: str) -> QosSamples:
    table = read_grid(directory)
    # The derived column is empty in the rows without a job; there the measured one has the same meaning.
    latency = np.where(np.isnan(table.numbers[latency_column]), table.numbers["p95_us"], table.numbers[latency_column])
    sizes, rates = table.numbers["input_size_bytes"], table.numbers["rps_target"]
    return _single_job_qos(table.texts["workload_type"], sizes, rates, latency, GRID_PRESSURE)


def _antagonist_qos(directory: Path) -> QosSamples:
    table = read_antagonists(directory)
    names = table.texts["interference"]
    return _single_job_qos(
        names, np.zeros(len(table)), table.numbers["target"], table.numbers["p95_us"], ANTAGONIST_PRESSURE
    )


def _single_job_qos(
    names: Sequence[str], sizes: Floats, rates: Floats, p95_microseconds: Floats, pressure: float
) -> QosSamples:
    """Return samples of at most one job: a row of `NO_JOB` has an empty mix."""
    types = tuple(sorted(set(names) - {NO_JOB}))
    counts = (np.asarray(names)[:, None] == np.asarray(types)[None, :]).astype(np.float64)
    present = counts.sum(axis=1)
    return _samples(rates, pressure * present, types, counts, counts * sizes[:, None], p95_microseconds)


def _samples(
    rates: Floats, pressure: Floats, types: tuple[str, ...], counts: Floats, sizes: Floats, p95_microseconds: Floats
) -> QosSamples:
    return QosSamples(
        MixBatch(
            requests_per_second=rates,
            other_requests_per_second=np.zeros_like(rates),
            limit_milliseconds=np.full_like(rates, DEFAULT_LIMIT_MILLISECONDS),
            cpu_pressure=pressure,
            types=types,
            counts=counts,
            input_bytes=sizes,
        ),
        p95_microseconds / 1000.0,
    )


def _dynamic_qos(directory: Path) -> QosSamples:
    """Return one sample for each interval; a job counts with its share of the interval."""
    table = read_dynamic_mixes(directory)
    numbers = table.numbers
    length = (numbers["run_end_ms"] - numbers["run_start_ms"]) / numbers["n_intervals"]
    starts = numbers["run_start_ms"] + numbers["interval"] * length
    spans = _running_spans(read_job_events(directory))
    types = tuple(sorted({job for _, job, *_ in spans}))
    runs = np.asarray([f"{a}/{b}" for a, b in zip(table.texts["experiment"], table.texts["run"], strict=True)])
    counts, pressure = np.zeros((len(table), len(types))), np.zeros(len(table))
    for run, job, begin, end, cores in spans:
        overlap = np.minimum(starts + length, end) - np.maximum(starts, begin)
        share = np.where(runs == run, np.clip(overlap / length, 0.0, 1.0), 0.0)
        counts[:, types.index(job)] += share
        pressure += share * cores / PARSEC_CORES
    return _samples(numbers["target"], pressure, types, counts, np.zeros_like(counts), numbers["p95_us"])


def _static_qos(directory: Path) -> QosSamples:
    """Return one sample for each latency interval; the cores of a job are unknown, each job counts as one (chosen)."""
    table = read_static_mixes(directory)
    kinds, runs = table.texts["kind"], table.texts["run"]
    starts, ends = table.numbers["start_ms"], table.numbers["end_ms"]
    rows = np.asarray([index for index, kind in enumerate(kinds) if kind == "memcached_interval"], dtype=np.intp)
    for row in rows:
        if np.isnan(table.numbers["p95_us"][row]) or np.isnan(table.numbers["target"][row]):
            raise InputError("an interval without latency", file=str(table.path), line=table.lines[row], field="p95_us")
    jobs = [index for index, kind in enumerate(kinds) if kind.startswith("job:parsec-")]
    types = tuple(sorted({kinds[index].removeprefix("job:parsec-") for index in jobs}))
    counts = np.zeros((len(rows), len(types)))
    same_run = np.asarray(runs)[rows]
    for index in jobs:
        overlap = np.minimum(ends[rows], ends[index]) - np.maximum(starts[rows], starts[index])
        share = np.clip(overlap / (ends[rows] - starts[rows]), 0.0, 1.0)
        counts[:, types.index(kinds[index].removeprefix("job:parsec-"))] += np.where(
            same_run == runs[index], share, 0.0
        )
    pressure = counts.sum(axis=1) / PARSEC_CORES
    target = table.numbers["target"][rows]
    return _samples(target, pressure, types, counts, np.zeros_like(counts), table.numbers["p95_us"][rows])


def _running_spans(events: Table) -> list[tuple[str, str, float, float, int]]:
    """Return (run, job, begin, end, cores) for each stretch of a job; times are epoch milliseconds."""
    spans: list[tuple[str, str, float, float, int]] = []
    running: dict[tuple[str, str], float] = {}
    cores: dict[tuple[str, str], int] = {}
    texts = events.texts
    for index, line in enumerate(events.lines):
        job, event = texts["job"][index], texts["event"][index]
        if job in ("scheduler", "memcached"):
            continue
        key = (f"{texts['experiment'][index]}/{texts['run'][index]}", job)
        try:
            # The log's clock is UTC: its runs begin within seconds of the epoch milliseconds of the latency table.
            at = datetime.fromisoformat(texts["iso_time"][index]).replace(tzinfo=UTC).timestamp() * 1000.0
        except ValueError:
            raise InputError(
                f"{texts['iso_time'][index]!r} is no ISO time", file=str(events.path), line=line, field="iso_time"
            ) from None
        if event == "start":
            cores[key] = max(1, texts["args"][index].partition("]")[0].count(",") + 1)
        if event in ("start", "unpause"):
            running[key] = at
        elif event in ("pause", "end") and key in running:
            spans.append((*key, running.pop(key), at, cores.get(key, 1)))
    return spans


def _grid_completion(table: Table, lone_runs: bool) -> CompletionSamples:
    names, numbers = table.texts["workload_type"], table.numbers
    rows = np.asarray([index for index, name in enumerate(names) if name != NO_JOB], dtype=np.intp)
    for row in rows:
        for field in ("censored", "completion_seconds", "completion_est_seconds", "completion_alone_seconds"):
            if np.isnan(numbers[field][row]):
                raise InputError("a batch row lacks it", file=str(table.path), line=table.lines[row], field=field)
    seconds = np.where(numbers["censored"] > 0, numbers["completion_est_seconds"], numbers["completion_seconds"])[rows]
    types, sizes, rates = [names[row] for row in rows], numbers["input_size_bytes"][rows], numbers["rps_target"][rows]
    if lone_runs:
        first = {(names[row], numbers["input_size_bytes"][row]): row for row in reversed(rows)}
        lone = np.asarray(sorted(first.values()), dtype=np.intp)
        types += [names[row] for row in lone]
        sizes = np.concatenate((sizes, numbers["input_size_bytes"][lone]))
        rates = np.concatenate((rates, np.zeros(len(lone))))
        seconds = np.concatenate((seconds, numbers["completion_alone_seconds"][lone]))
    return CompletionSamples(tuple(types), sizes, rates, np.full(len(types), GRID_PRESSURE), seconds)


def _parsec_completion(table: Table) -> CompletionSamples:
    """Return the one-thread runs; with an antagonist the pressure is that of two busy cores (chosen)."""
    rows = np.flatnonzero(table.numbers["threads"] == 1)
    names, inputs = table.texts["benchmark"], table.texts["input"]
    types = tuple(f"{names[row]}-simlarge" if inputs[row] == "simlarge" else names[row] for row in rows)
    alone = np.asarray([table.texts["interference"][row] == NO_JOB for row in rows])
    pressure = np.where(alone, ANTAGONIST_PRESSURE, 2 * ANTAGONIST_PRESSURE)
    return CompletionSamples(types, np.zeros(len(rows)), np.zeros(len(rows)), pressure, table.numbers["real_s"][rows])

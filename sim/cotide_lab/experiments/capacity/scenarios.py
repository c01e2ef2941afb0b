"""Input of the capacity experiment: a stream of tasks, a park of machines, prices, and the stretch that counts.

Called by `run`. Four sources: the Google 2011 job table, the Alibaba 2017 batch tasks, the OpenB pods, and a generated
day for users without data. Invariant: the same source, data and seed give the same scenario. `Scenario.reading`
documents how a table was thickened or thinned to fit a park.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.provisioning.capacity_model import MachineType
from cotide_files.rows import stream_rows
from cotide_lab.provisioning.task_stream import TaskStream
from cotide_predictors.capacity.price_outlook import foreseen_prices
from cotide_sim.traces.economy.hourly import read_prices
from cotide_sim.traces.economy.specpower import SERVERS, sized
from cotide_sim.traces.jobs.alibaba2017 import read_batch_tasks
from cotide_sim.traces.jobs.google2011 import read_google_jobs
from cotide_sim.traces.jobs.machines import DEVICE
from cotide_sim.traces.jobs.openb_log import openb_devices

Floats = NDArray[np.float64]

DAY: Final = 86_400.0
TRACES: Final = ("google2011", "alibaba2017", "openb")
MARKET: Final = "US-MIDA-PJM_USD"
PRICE_HOURS: Final = 168
"""Past prices in use; forecasts of later prices return to their mean (as in the placement experiment)."""
GOOGLE_MACHINES: Final = ((0.5, 0.5, 6732), (0.5, 0.25, 3863), (0.5, 0.75, 1001), (1.0, 1.0, 795), (0.25, 0.25, 126))
"""Cpu, memory and number of the cell's machine types above 0.5 % of it; units of the largest machine. Source: Reiss et
al., Heterogeneity and dynamicity of clouds at scale, SoCC 2012, Table 1."""
GOOGLE_TASKS: Final = 30
"""Tasks that represent a job of the Google table, with one task a row; the trace's mean is 37 (chosen)."""
ALIBABA_SHARE: Final = 40
"""One of so many instances of an Alibaba task is kept (chosen: fits a park of a hundred machines)."""
OPENB_COPIES: Final = 8
"""Pods that represent a pod of the OpenB list, which is a sample (chosen)."""
GPUS_OF_LARGEST: Final = 8
"""GPUs of a node of that trace: the unit of GPUs as a resource."""
HEADROOM: Final = 2.5
"""Capacity of the park over the highest demand of the training part, by its scarcest resource (chosen)."""
ON_COST_HOURS: Final = 1.0 / 6.0
"""A switch costs as much as ten minutes idle, for wear (chosen; Zhang and Boutaba 2014 name the cost, not the sum)."""
BOOT_SECONDS: Final = (120.0, 240.0)
"""Boots take from two to four minutes, by type (chosen; 20 s to 13 min in Zhang and Boutaba 2014, sec. II)."""


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """One run's world.

    Attributes
    ----------
    train, run : earlier tasks for learning classes and forecasts, and tasks of the run, each from 0 s.
    machines : types with counts; ``boot_seconds`` of each.
    warm_up_seconds, score_seconds : the part of the run that does not count, and the part that counts.
    price : (hours,) money per kWh, from the run's start on; ``price_before`` (hours,) up to it.
    reading : the reading of the table, in words.
    train_seconds : length of the part before the run, which ends where the run starts.
    devices : GPUs of a machine of each type; empty for none.
    """

    name: str
    train: TaskStream
    run: TaskStream
    machines: tuple[MachineType, ...]
    boot_seconds: tuple[float, ...]
    step_seconds: float
    warm_up_seconds: float
    score_seconds: float
    price: Floats
    price_before: Floats
    reading: str
    train_seconds: float
    devices: tuple[int, ...] = ()

    def price_at(self, seconds: Floats) -> Floats:
        """Return the price at times of the run."""
        return self.price[np.minimum((seconds // 3600.0).astype(np.int64), len(self.price) - 1)]

    def foreseen_price(self, now: float, steps: int) -> Floats:
        """Return (steps,) forecast prices at a time of the run: later hours are not known yet."""
        hour = min(int(now // 3600.0), len(self.price) - 1)
        history = np.concatenate((self.price_before, self.price[: hour + 1]))[-PRICE_HOURS:]
        return foreseen_prices(history, steps, self.step_seconds)


def scenario(trace: str, data: Path | None, seed: int, *, score_hours: float | None = None) -> Scenario:
    """Return the scenario of a trace.

    ``trace``: one of `TRACES`, or ``generated``. ``score_hours``: length of the stretch that counts, for a first look;
    None for the usual.

    Raises
    ------
    InputError
        When the data are missing or broken.
    """
    rng = np.random.default_rng(seed)
    if trace == "generated" or data is None:
        stream, plan, reading = _generated(rng), (1.0, 1.0 / 24, 0.5), "generated tasks, two days"
    elif trace == "google2011":
        stream, plan = _google(data, rng), (3.0, 1.0 / 12, 1.0)
        reading = f"jobs spread over 29 days by number, each as {GOOGLE_TASKS} tasks within five minutes"
    elif trace == "alibaba2017":
        stream, plan = _alibaba(data, rng), (0.25, 1.0 / 24, 0.4)
        reading = (
            f"one in {ALIBABA_SHARE} instances of a task, on Google's machine types; 17 hours in all, no day before"
        )
    else:
        stream, plan = _openb(data, rng), (5.0, 0.5, 1.0)
        reading = f"each pod {OPENB_COPIES} times within half an hour; GPUs are devices, and not in power"
    train_days, warm_days, score_days = plan
    if score_hours is not None:
        score_days = min(score_days, score_hours / 24.0)
    span = train_days + warm_days + score_days
    latest = float(stream.arrival[-1]) - span * DAY
    first = float(rng.uniform(0.0, max(latest, 0.0)))
    middle = first + train_days * DAY
    train, run = stream.between(first, middle), stream.between(middle, first + span * DAY)
    machines, boots = _machines(trace, train, data, rng)
    gpus = tuple(round(kind.capacity[2] * GPUS_OF_LARGEST) if len(kind.capacity) > 2 else 0 for kind in machines)
    train, run = _hosted(train, machines, gpus), _hosted(run, machines, gpus)
    before, price = _prices(data, rng, span)
    return Scenario(
        trace if data is not None else "generated", train, run, machines, boots, 300.0, warm_days * DAY,
        score_days * DAY, price, before, reading, train_days * DAY, gpus,
    )  # fmt: skip


def _google(data: Path, rng: np.random.Generator) -> TaskStream:
    rows = [
        (job.order, job.seconds, job.cpu_percent / 100.0, job.memory_share, job.priority, min(job.tasks, 7))
        for job in read_google_jobs(data)
    ]
    table = np.array(sorted(rows))
    arrival = (table[:, 0] - table[0, 0]) / np.ptp(table[:, 0]) * 29 * DAY
    copies = np.repeat(np.arange(len(table)), (GOOGLE_TASKS * table[:, 5]).astype(int))
    times = arrival[copies] + rng.uniform(0.0, 300.0, len(copies))
    return _stream("google2011", ("cpu", "memory"), times, table[copies, 1], table[copies, 2:4], table[copies, 4])


def _alibaba(data: Path, rng: np.random.Generator) -> TaskStream:
    rows = [
        (task.created_seconds, task.seconds, task.instances, task.cores / 64.0, task.memory_share)
        for task in read_batch_tasks(data)
        if task.status == "Terminated" and task.cores is not None and task.memory_share is not None
        if task.created_seconds >= 0 and task.seconds > 0
    ]
    table = np.array(rows)
    kept = rng.binomial(table[:, 2].astype(int), 1.0 / ALIBABA_SHARE)
    copies = np.repeat(np.arange(len(table)), kept)
    seconds = np.maximum(table[copies, 1], 1.0)
    need = table[copies, 3:5]
    fits = (need <= 1.0).all(axis=1)
    return _stream(
        "alibaba2017", ("cpu", "memory"), table[copies, 0][fits], seconds[fits], need[fits], np.zeros(int(fits.sum()))
    )


def _openb(data: Path, rng: np.random.Generator) -> TaskStream:
    path = data / "alibaba" / "openb_pod_list_default.csv"
    columns = (
        "cpu_milli",
        "memory_mib",
        "num_gpu",
        "gpu_milli",
        "qos",
        "creation_time",
        "deletion_time",
        "scheduled_time",
    )
    rows = []
    for row in stream_rows(path, columns, what="OpenB pods"):
        started, ended = row.optional_number("scheduled_time"), row.optional_number("deletion_time")
        if started is None or ended is None or ended <= started:
            continue
        many, each = openb_devices(row)
        need = (row.number("cpu_milli") / 128_000.0, row.number("memory_mib") / 1_048_576.0)
        gpus = (many * each / DEVICE / GPUS_OF_LARGEST, many, each / DEVICE)
        rows.append((row.number("creation_time"), ended - started, *need, *gpus, float(row.text("qos") == "LS")))
    table = np.array(rows)
    table = table[table[:, 0] >= 115 * DAY]  # the months before have a pod every few days
    copies = np.repeat(np.arange(len(table)), OPENB_COPIES)
    times = table[copies, 0] + rng.uniform(0.0, 1800.0, len(copies))
    tasks = (times, table[copies, 1], table[copies, 2:5], table[copies, 7])
    return _stream("openb", ("cpu", "memory", "gpu"), *tasks, devices=table[copies, 5:7])


def _generated(rng: np.random.Generator) -> TaskStream:
    """Return two days of three kinds of tasks with a daily wave: small and short, long, and wide in memory."""
    parts = []
    for count, cpu, memory, seconds, priority in (
        (12_000, 0.01, 0.01, 180.0, 0.0),
        (1_500, 0.03, 0.02, 3_000.0, 2.0),
        (600, 0.05, 0.4, 900.0, 9.0),
    ):
        times = rng.uniform(0.0, 2 * DAY, 3 * count)
        wave = 0.55 + 0.45 * np.sin(2 * np.pi * times / DAY)
        times = times[rng.uniform(size=len(times)) < wave]
        noise = rng.lognormal(0.0, 0.4, (len(times), 2))
        need = np.minimum(np.array([cpu, memory]) * noise, 0.95)
        parts.append((times, rng.lognormal(np.log(seconds), 0.6, len(times)), need, np.full(len(times), priority)))
    return _stream("generated", ("cpu", "memory"), *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _stream(
    name: str,
    resources: tuple[str, ...],
    arrival: Floats,
    seconds: Floats,
    need: Floats,
    priority: Floats,
    devices: Floats | None = None,
) -> TaskStream:
    order = np.argsort(arrival, kind="stable")
    start = arrival[order[0]] if len(order) else 0.0
    devices = None if devices is None else devices[order]
    return TaskStream(name, resources, arrival[order] - start, seconds[order], need[order], priority[order], devices)


def _machines(
    trace: str, train: TaskStream, data: Path | None, rng: np.random.Generator
) -> tuple[tuple[MachineType, ...], tuple[float, ...]]:
    """Return types with counts in the proportions of the real park, and published curves drawn by the seed."""
    shapes = GOOGLE_MACHINES if trace != "openb" or data is None else _openb_shapes(data)
    capacity = np.array([shape[:-1] for shape in shapes], dtype=np.float64)
    share = np.array([shape[-1] for shape in shapes], dtype=np.float64)
    share /= share.sum()
    demand = _highest(train)
    scale = HEADROOM * float((demand / (share @ capacity)).max())
    counts = np.maximum(np.round(share * scale), 2).astype(int)
    # The traces do not give the make of a type: the seed draws the makes, so figures hold over all of them.
    makes = rng.permutation(np.arange(len(shapes)) % len(SERVERS))
    boots = rng.permutation(np.linspace(*BOOT_SECONDS, len(shapes)))
    types = []
    for shape, count, make in zip(capacity, counts, makes, strict=True):
        curve = sized(SERVERS[make], float(shape[0]))
        # At 0.04 a kWh, the mean of the prices used.
        wear = curve.idle / 1000.0 * ON_COST_HOURS * 0.04
        name = f"{'/'.join(f'{part:.2g}' for part in shape)} {SERVERS[make].name.split(', ')[1]}"
        types.append(MachineType(name, tuple(map(float, shape)), int(count), curve, wear, 0.0, 1, 2))
    return tuple(types), tuple(float(boot) for boot in boots)


def _hosted(stream: TaskStream, machines: Sequence[MachineType], gpus: Sequence[int]) -> TaskStream:
    """Return the tasks that some type can hold: the others would wait under any controller."""
    capacity = np.array([kind.capacity for kind in machines])
    fits = np.all(stream.need[:, None, :] <= capacity[None] + 1e-9, axis=2)
    if stream.devices is not None:
        fits &= stream.devices[:, :1] <= np.array(gpus)[None, :]
    return stream.those(np.asarray(np.any(fits, axis=1)))


def _openb_shapes(data: Path) -> Sequence[tuple[float, ...]]:
    """Return cpu, memory, GPUs and number of the eight commonest kinds of nodes, in units of the largest."""
    path = data / "alibaba" / "openb_node_list_all_node.csv"
    found: dict[tuple[float, ...], int] = {}
    for row in stream_rows(path, ("cpu_milli", "memory_mib", "gpu"), what="OpenB nodes"):
        amounts = (row.number("cpu_milli"), row.number("memory_mib"), row.optional_number("gpu") or 0.0)
        shape = (amounts[0] / 128_000.0, amounts[1] / 1_048_576.0, amounts[2] / GPUS_OF_LARGEST)
        found[shape] = found.get(shape, 0) + 1
    commonest = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:8]
    return [(*shape, float(count)) for shape, count in commonest]


def _highest(stream: TaskStream) -> Floats:
    """Return (R,): the highest needs at one time if no task waits; only whole hours are checked."""
    hours = np.arange(0.0, stream.arrival[-1], 600.0)
    found = np.zeros(stream.need.shape[1])
    ends = stream.arrival + stream.seconds
    for resource in range(len(found)):
        need = stream.need[:, resource]
        order = np.argsort(ends)
        came = np.concatenate(([0.0], np.cumsum(need)))[np.searchsorted(stream.arrival, hours, side="right")]
        went = np.concatenate(([0.0], np.cumsum(need[order])))[np.searchsorted(ends[order], hours, side="right")]
        found[resource] = float((came - went).max())
    return found


def _prices(data: Path | None, rng: np.random.Generator, days: float) -> tuple[Floats, Floats]:
    """Return prices by the hour, of a week before the run and from its start on."""
    hours = int(days * 24) + 48
    if data is None:
        wave: Floats = 0.04 + 0.02 * np.sin(np.arange(-PRICE_HOURS, hours) * np.pi / 12.0)
        return wave[:PRICE_HOURS], wave[PRICE_HOURS:]
    (series,) = read_prices(data, (MARKET,))
    # The years 2021 to 2023: the series of this market starts in the first days of 2020.
    first = int(rng.integers(24 * 366, 24 * 366 * 4 - hours))
    found = series.window(first - PRICE_HOURS, PRICE_HOURS + hours) / 1000.0
    return found[:PRICE_HOURS], found[PRICE_HOURS:]

"""The paper's data center for experiment hierarchical: machines, a day of tasks, and the usage of production.

Called by `hierarchical.schedule`. The six machines are Table I of Jiang et al., and the numbers of tasks by priority
are those of Table II. The table adds up to 2287; with the 2017 of the text the paper's own delays are impossible, see
docs/design/slack.md. The trace slice itself was never published, so tasks and usage are generated. Run times follow
the text and figure 4 (over 40 % within 300 s, half within 500 s); longer ones follow the tail of the trace that
contains the slice. Tasks come in bursts as jobs do, and their requests are chosen; `schedule.DEFAULT_LOAD` scales them.
Real series can replace the generated production usage. Invariant: same seed, same day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.kernels.array_types import Floats
from cotide_sim.traces.load.load_series import SLOT_SECONDS, LoadSeries

DAY_SECONDS: Final = 86_400.0
SAMPLE_SECONDS: Final = 20.0
"""Interval between measurements of usage; chosen: every slot size of the paper is a multiple."""
DAY_SAMPLES: Final = int(DAY_SECONDS / SAMPLE_SECONDS)
WHOLE_MILLICORES: Final = 100_000
"""Cpu 1 of the paper's normalised machines, in millicores; chosen fine enough that rounding is negligible."""
WHOLE_BYTES: Final = 1_000_000_000_000
REFERENCE_RATE: Final = 1500.0
"""MIPS at which a task takes its drawn time; Table I's middle."""
GRATIS_TASKS: Final = 1754
BATCH_TASKS: Final = 475 + 58
TAIL_SPREAD: Final = 1.57
"""Root mean square of log(seconds / 500 s) over the run times above 500 s. Source: priorities 0 to 8 of the Google 2011
job features (18,977 jobs; 1.57 for gratis and 1.58 for batch)."""
LONGEST_SECONDS: Final = 17 * 3600.0
"""The longest run time there."""
ONLINE_SHARE: Final = 0.35
"""Mean share of a machine's cpu and memory that production uses; chosen within the 10-50 % of Jiang et al., section
I."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One row of Table I: normalised cpu and memory, and million instructions per second."""

    name: str
    mips: float
    cpu: float
    memory: float


MACHINES: Final = (
    Machine("machine-0", 2000, 1.0, 1.0),
    Machine("machine-1", 1000, 0.5, 0.2393),
    Machine("machine-2", 1500, 0.5, 0.4995),
    Machine("machine-3", 1000, 0.5, 0.4995),
    Machine("machine-4", 1500, 0.5, 0.4995),
    Machine("machine-5", 1000, 1.0, 1.0),
)


@dataclass(frozen=True, slots=True)
class Task:
    """One task of the day; ``seconds`` at the reference rate, cpu and memory normalised."""

    number: int
    workload_class: WorkloadClass
    at_seconds: float
    seconds: float
    cpu: float
    memory: float


def draw_tasks(seed: int, *, load: float = 1.0) -> list[Task]:
    """Return the day's tasks in order of submission; ``load`` scales their requests."""
    generator = np.random.default_rng([seed, 1])
    classes = [WorkloadClass.GRATIS] * GRATIS_TASKS + [WorkloadClass.BATCH] * BATCH_TASKS
    generator.shuffle(classes)
    tasks: list[Task] = []
    while len(tasks) < len(classes):
        # A job: tasks alike in size and class, submitted within some seconds.
        at = float(generator.uniform(0.0, DAY_SECONDS - 1200.0))
        size = min(int(1 + generator.pareto(1.3) * 2.0), 60, len(classes) - len(tasks))
        cpu = load * float(np.clip(generator.lognormal(np.log(0.030), 0.8), 0.004, 0.3))
        memory = load * float(np.clip(generator.lognormal(np.log(0.015), 0.8), 0.001, 0.2))
        for _ in range(size):
            number = len(tasks)
            moment = at + float(generator.exponential(20.0))
            tasks.append(Task(number, classes[number], moment, _run_seconds(generator), cpu, memory))
    return sorted(tasks, key=lambda task: (task.at_seconds, task.number))


def _run_seconds(generator: np.random.Generator) -> float:
    """Draw a run time: 42 % below 300 s, 50 % below 500 s (figure 4), the rest the trace's tail."""
    kind = generator.random()
    if kind < 0.42:
        return float(generator.uniform(30.0, 300.0))
    if kind < 0.50:
        return float(generator.uniform(300.0, 500.0))
    return float(min(LONGEST_SECONDS, 500.0 * np.exp(abs(generator.normal(0.0, TAIL_SPREAD)))))


def draw_usage(seed: int) -> Floats:
    """Return (2, 6, 2 days of samples) production usage as shares of each machine: cpu and memory.

    A daily course with a peak of 1.3 times the mean (Jiang et al., section I), a smooth wander, jitter, and now and
    then a surge of some minutes. The first day serves to fit models.
    """
    generator = np.random.default_rng([seed, 2])
    samples = 2 * DAY_SAMPLES
    day = 2 * np.pi * np.arange(samples) / DAY_SAMPLES
    usage = np.zeros((2, len(MACHINES), samples))
    for machine in range(len(MACHINES)):
        level = ONLINE_SHARE * generator.uniform(0.7, 1.3)
        course = level * (1 + 0.3 * np.sin(day + generator.uniform(0, 2 * np.pi)))
        wander = _smooth(generator, samples, keep=0.995, spread=0.05)
        surges = _surges(generator, samples)
        usage[0, machine] = course + wander + surges + generator.normal(0.0, 0.008, samples)
        usage[1, machine] = ONLINE_SHARE * generator.uniform(0.7, 1.3) + _smooth(
            generator, samples, keep=0.999, spread=0.02
        )
    return np.clip(usage, 0.0, 0.95)


def usage_from_series(series: LoadSeries, seed: int) -> Floats:
    """Return usage as `draw_usage` does, from real cpu series of at least two days of 300 s slots.

    Six series with the most records are drawn, each scaled to a mean of `ONLINE_SHARE`; between slots it is linear.
    Memory is generated.
    """
    generator = np.random.default_rng([seed, 3])
    slots = int(2 * DAY_SECONDS / SLOT_SECONDS)
    usage = draw_usage(seed)
    window = series.load[:, :slots]
    present = np.isfinite(window).sum(axis=1)
    fullest = np.flatnonzero(present == present.max())
    chosen = generator.choice(fullest, len(MACHINES), replace=len(fullest) < len(MACHINES))
    at = np.arange(2 * DAY_SAMPLES) * SAMPLE_SECONDS / SLOT_SECONDS
    for machine, row in enumerate(chosen.tolist()):
        known = np.flatnonzero(np.isfinite(window[row]))
        values = window[row, known]
        course = np.interp(at, known + 0.5, values * ONLINE_SHARE / max(1e-6, float(values.mean())))
        usage[0, machine] = np.clip(course, 0.0, 0.95)
    return usage


def _smooth(generator: np.random.Generator, samples: int, *, keep: float, spread: float) -> Floats:
    steps = generator.normal(0.0, spread * np.sqrt(1 - keep * keep), samples)
    for index in range(1, samples):
        steps[index] += keep * steps[index - 1]
    return steps


def _surges(generator: np.random.Generator, samples: int) -> Floats:
    surges = np.zeros(samples)
    for start in np.flatnonzero(generator.random(samples) < 6 / DAY_SAMPLES).tolist():
        length = int(generator.uniform(6, 45))
        height = float(generator.uniform(0.05, 0.25))
        surges[start : start + length] += height * np.sin(np.pi * np.arange(length) / length)[: samples - start]
    return surges

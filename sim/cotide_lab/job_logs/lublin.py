"""Jobs after the workload model of Lublin and Feitelson (2003), batch and interactive.

Called by `generated_log`. First step of the flow: a seed to columns. Pure. Invariant: same arguments, same jobs; a job
fits the machine.

Source of the model and of every constant: U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers:
modeling the characteristics of rigid jobs", Journal of Parallel and Distributed Computing 63(11), 2003, with the
program that they published. The draws:

- processors: 1 with some probability; else 2 to a two-stage uniform exponent, rounded for the share of powers of two;
- run time: e to a hyper-gamma variable with a mixing probability that falls linearly with the processors;
- arrivals: gaps of e to a gamma variable, counted in *weighted* seconds: a half hour of the day has the weight of a
  gamma distribution over the day, on average 1. Each class arrives on its own.

The paper's machines have 128 processors. On another, the largest exponent is the machine's and the middle one two below
it, as there. A heavier load is made by shorter weighted gaps, so that the day keeps its course.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc

from cotide_core.kernels.array_types import Floats, Integers

PROCESSORS: Final = 128
HALF_HOURS: Final = 48
HALF_HOUR_SECONDS: Final = 1800.0
DAY_BEGINS: Final = 11
"""Half hours after midnight at which the gamma distribution over the day begins."""
LOG_RUN_MAX: Final = 12.0
LOG_GAP_MAX: Final = 13.0
"""Larger logarithms of seconds are redrawn."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """The parameters of one class, by the names of the paper.

    Attributes
    ----------
    serial, power_of_two : shares of jobs of one processor, and of 2, 4, 8, ...
    low, middle, high, first : the exponent is uniform in [low, middle] with probability ``first``, else in [middle,
        high]; ``middle`` and ``high`` are for 128 processors.
    short, long : (shape, scale) of the two gammas of the run time's logarithm.
    falls, at_zero : the probability of ``short`` is falls x processors + at_zero.
    gap : (shape, scale) of the gap's logarithm in the rush hours; gap_all_day multiplies its shape.
    over_day : (shape, scale) of arrivals over the day, in half hours.
    """

    serial: float
    power_of_two: float
    low: float
    middle: float
    high: float
    first: float
    short: tuple[float, float]
    long: tuple[float, float]
    falls: float
    at_zero: float
    gap: tuple[float, float]
    gap_all_day: float
    over_day: tuple[float, float]


BATCH: Final = JobClass(
    serial=0.2927, power_of_two=0.6686, low=1.2, middle=5.0, high=7.0, first=0.875,
    short=(6.57, 0.823), long=(639.1, 0.0156), falls=-0.003, at_zero=0.6986,
    gap=(6.0415, 0.8531), gap_all_day=1.0519, over_day=(6.1271, 5.2740),
)  # fmt: skip
INTERACTIVE: Final = JobClass(
    serial=0.1541, power_of_two=0.625, low=1.0, middle=3.0, high=5.5, first=0.705,
    short=(3.8351, 0.6605), long=(7.073, 0.6856), falls=-0.0118, at_zero=0.9156,
    gap=(6.5510, 0.6621), gap_all_day=0.9797, over_day=(8.9186, 3.6680),
)  # fmt: skip

CLASSES: Final = (BATCH, INTERACTIVE)


@dataclass(frozen=True, slots=True)
class LublinJobs:
    """Drawn jobs by submission; arrays are (n,) int64: seconds, seconds, processors, and whether one is interactive."""

    submit: Integers
    run: Integers
    demand: Integers
    interactive: npt.NDArray[np.bool_]


def lublin_jobs(count: int, processors: int, seed: int, load: float | None = None) -> LublinJobs:
    """Return the first ``count`` jobs, >= 1.

    Parameters
    ----------
    processors : of the machine, >= 2.
    load : processor seconds requested by second, as a share of the machine; None leaves arrivals as in the model.
    """

    # A stream for each class and purpose, so that the same seed draws the same jobs at any load.
    def arrivals(counts: tuple[int, int], stretch: float) -> tuple[Floats, npt.NDArray[np.bool_]]:
        streams = [np.random.default_rng([seed, stream]) for stream in range(2)]
        times = np.concatenate(
            [_arrivals(kind, n, rng, stretch) for kind, n, rng in zip(CLASSES, counts, streams, strict=True)]
        )
        order = np.argsort(times, kind="stable")[:count]
        return np.floor(times[order]), order >= counts[0]

    submit, interactive = arrivals((count, count), 1.0)
    counts = int(np.count_nonzero(~interactive)), int(np.count_nonzero(interactive))
    work = [
        _work(kind, n, processors, np.random.default_rng([seed, 2 + index]))
        for index, (kind, n) in enumerate(zip(CLASSES, counts, strict=True))
    ]
    if load is not None:
        offered = sum(float((run * demand).sum()) for demand, run in work)
        submit, interactive = arrivals(counts, offered / (processors * load) / max(1.0, float(submit[-1])))
    demand, run = np.empty((2, count), dtype=np.int64)
    for rows, (some_demand, some_run) in zip((~interactive, interactive), work, strict=True):
        demand[rows], run[rows] = some_demand, some_run
    return LublinJobs(submit.astype(np.int64), run, demand, interactive)


def day_weights(kind: JobClass) -> Floats:
    """Return (48,) weights of each half hour from midnight on, on average 1."""
    shape, scale = kind.over_day
    weights = np.empty(HALF_HOURS)
    hours = np.arange(DAY_BEGINS, HALF_HOURS + DAY_BEGINS)
    weights[(hours - 1) % HALF_HOURS] = gammainc(shape, (hours + 0.5) / scale) - gammainc(shape, (hours - 0.5) / scale)
    return np.asarray(weights / weights.mean())


def _arrivals(kind: JobClass, count: int, generator: np.random.Generator, stretch: float) -> Floats:
    """Return (count,) rising arrival times in seconds from midnight of the first day."""
    shape, scale = kind.gap
    logs = _below(lambda size: generator.gamma(shape * kind.gap_all_day, scale, size), count, LOG_GAP_MAX)
    worth = np.cumsum(np.exp(logs)) * stretch / HALF_HOUR_SECONDS
    passed = np.concatenate([[0.0], np.cumsum(day_weights(kind))])
    days = np.floor(worth / HALF_HOURS)
    in_day = np.interp(worth - days * HALF_HOURS, passed, np.arange(HALF_HOURS + 1.0))
    return np.asarray((days * HALF_HOURS + in_day) * HALF_HOUR_SECONDS)


def _work(kind: JobClass, count: int, processors: int, generator: np.random.Generator) -> tuple[Integers, Integers]:
    """Return (count,) processors and (count,) seconds."""
    most = math.log2(processors)
    high = min(kind.high, most) if kind is INTERACTIVE else most
    middle = max(kind.low, high - (kind.high - kind.middle))
    which = generator.random(count)
    stage = generator.random(count) <= kind.first
    low = min(kind.low, high)
    exponent = generator.random(count)
    exponent = np.where(stage, low + exponent * (middle - low), middle + exponent * (high - middle))
    rounded = np.minimum(np.floor(exponent + 0.5), math.floor(most))
    exponent = np.where(which <= kind.serial + kind.power_of_two, rounded, exponent)
    demand = np.where(which <= kind.serial, 1.0, np.floor(2.0**exponent + 0.5))
    demand = np.clip(demand, 1, processors)
    short = generator.random(count) <= np.clip(kind.falls * demand + kind.at_zero, 0.0, 1.0)

    def draw(parameters: tuple[float, float]) -> Floats:
        return _below(lambda size: generator.gamma(*parameters, size), count, LOG_RUN_MAX)

    run = np.floor(np.exp(np.where(short, draw(kind.short), draw(kind.long))))
    return demand.astype(np.int64), np.maximum(run, 1.0).astype(np.int64)


def _below(draw: Callable[[int], Floats], count: int, most: float) -> Floats:
    """Return (count,) draws, each redrawn until it is not above ``most``."""
    values = draw(count)
    while (over := values > most).any():
        values[over] = draw(int(np.count_nonzero(over)))
    return np.asarray(values)

"""Run times learned from habits: a mixture of a user's past runs, with weights that follow what came true.

Called by the replay kernels at each submission and each completion, in simulated time, so that a schedule's forecasts
rest on that schedule's own completions. A forecast is a distribution over bins of log seconds. Each component of the
mixture is one past run of the same user, a past share of the request, the request itself, or all times up to the
request evenly. The past runs are the latest few of the same size and request, of the same request, of the same size,
and of any. Each component counts once narrowly and once widely. Its weights belong to a case: the number of such runs
and the distance of the last two. A completion moves the weights of its job's case towards the components that had
expected it (online expectation maximisation: Cappe and Moulines 2009).

It has three answers. The seconds of highest expected accuracy (Naghshnejad 2019, eq. 4.2) order jobs. The seconds that
a given share does not outlive serve reservations. The expected accuracy, corrected by the outcomes of forecasts with
the same expectation, is the job's reliability (section 4.2.3).

Invariant: a forecast uses only jobs that finished before the submission. Additions, products and table look-ups only,
in a fixed order: compiled code and plain Python give the same bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled

Codes = npt.NDArray[np.int16]

BINS: Final = 96
"""Equal parts of log seconds from 1 s to `LONGEST_SECONDS`: 16 % each (chosen)."""
LONGEST_SECONDS: Final = 2.0e6
"""As in the tree forecasts: above the longest run of the logs used here."""
KEYS: Final = 4
"""Kinds of likeness: size and request, request, size, none; always of the same user."""
LAGS: Final = 5
"""Latest runs that are remembered of each (chosen, as in the maximum of five)."""
RATIO: Final = KEYS * LAGS
"""Index of the first share of the request."""
REQUEST: Final = RATIO + LAGS
"""Index of the request itself."""
BROAD: Final = REQUEST + 1
"""Index of the component that is even over all bins up to the request."""
COMPONENTS: Final = BROAD + 1
WIDTHS: Final = (0.05, 0.7)
"""Scales of the two Laplace kernels, in log seconds (chosen)."""
LEVELS: Final = 5
"""Cases of one key: no run, one run, the last two within one bin, within `NEAR_BINS`, further apart."""
NEAR_BINS: Final = 6
"""A factor of 2.5 (chosen)."""
CASES: Final = LEVELS * LEVELS
"""Cases of the first key x of the last."""
LEAST_STEP: Final = 0.003
"""Step by which a completion moves the weights of its case, once it has had many (chosen)."""
PRIOR_COUNT: Final = 20.0
"""Completions that the first weights count as (chosen)."""
UPPER_SHARE: Final = 0.9
"""Share of runs that shall not outlive the upper forecast (chosen)."""
LEVEL_STEP: Final = 0.01
"""Step of the quantile for an outlived upper forecast, less the target's share (chosen)."""
LEVELS_TAKEN: Final = (0.5, 0.995)
"""Ends between which the quantile moves (chosen)."""
CELLS: Final = 40
"""Cells of expected accuracy over which outcomes are averaged (chosen)."""
CELL_PRIOR: Final = 20.0
"""Outcomes that a cell's own expectation counts as (chosen)."""


class Habits(NamedTuple):
    """The known past runs, and the tables that turn them into a forecast. All arrays; changed in place.

    Attributes
    ----------
    keys : (KEYS, n) each job's number of each kind of likeness.
    runs : (KEYS, most, LAGS) seconds of the latest finished runs, newest first; 0 where there is none.
    ratios : (users, LAGS) run / request of the user's latest, newest first; 0 where there is none.
    weights : (CASES, 2, COMPONENTS) of the mixture; each case adds up to 1.
    counts : (CASES,) completions that moved them.
    bins : (n, COMPONENTS) bin of each component of each job's forecast, -1 where there is none.
    case : (n,) each job's.
    cell : (n,) of each job's expected accuracy.
    reliability : (n,) out: estimated accuracy of each job's forecast.
    upper : (n,) out: seconds that all but one in ten do not outlive.
    level : (1,) the mixture's quantile that keeps `UPPER_SHARE`.
    outcomes : (2, CELLS) number and sum of the accuracies of each cell's forecasts.
    edges : (BINS + 1,) first whole second of each bin.
    centres : (BINS,) seconds.
    mass : (2, BINS, BINS) share of a kernel centred in the first bin that lies in the second.
    gain : (2, BINS, BINS) expected accuracy of the second bin's centre when the run lies about the first.
    """

    keys: Integers
    runs: Integers
    ratios: Floats
    weights: Floats
    counts: Integers
    bins: Codes
    case: Integers
    cell: Integers
    reliability: Floats
    upper: Integers
    level: Floats
    outcomes: Floats
    edges: Integers
    centres: Floats
    mass: Floats
    gain: Floats


def habits_of(user: Integers, demand: Integers, request: Integers) -> Habits:
    """Return the state before the first job of a log; columns (n,). An unknown user, -1, counts as one user."""
    jobs = len(user)
    keys = np.stack([_codes(user, demand, request), _codes(user, request), _codes(user, demand), _codes(user)])
    edges, centres, mass, gain = _tables()
    weights = np.full((CASES, 2, COMPONENTS), 1.0)
    weights /= weights[0].sum()
    return Habits(
        keys=keys,
        runs=np.zeros((KEYS, int(keys.max(initial=0)) + 1, LAGS), np.int64),
        ratios=np.zeros((int(keys[-1].max(initial=0)) + 1, LAGS)),
        weights=weights,
        counts=np.zeros(CASES, np.int64),
        bins=np.full((jobs, COMPONENTS), -1, np.int16),
        case=np.zeros(jobs, np.int64),
        cell=np.zeros(jobs, np.int64),
        reliability=np.zeros(jobs),
        upper=np.zeros(jobs, np.int64),
        level=np.full(1, UPPER_SHARE),
        outcomes=np.zeros((2, CELLS)),
        edges=edges,
        centres=centres,
        mass=mass,
        gain=gain,
    )


@cache
def _tables() -> tuple[Integers, Floats, Floats, Floats]:
    """Return the bins' edges and centres, the kernels and their gains; made once and never written to."""
    log_edges = np.linspace(0.0, np.log(LONGEST_SECONDS), BINS + 1)
    middle = (log_edges[:-1] + log_edges[1:]) / 2
    away = np.abs(middle[:, None] - middle[None, :])
    mass = np.stack([np.exp(-away / width) for width in WIDTHS])
    mass /= mass.sum(axis=2, keepdims=True)
    # einsum adds in one order on every machine, a matrix product does not.
    gain = np.einsum("kij,jl->kil", mass, np.exp(-away))
    tables = (np.ceil(np.exp(log_edges)).astype(np.int64), np.exp(middle), mass, gain)
    for table in tables:
        table.setflags(write=False)
    return tables


def _codes(*columns: Integers) -> Integers:
    found = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, inverse = np.unique(column, return_inverse=True)
        _, found = np.unique(found * (len(inverse) + 1) + inverse, return_inverse=True)
    return found.astype(np.int64)


@compiled
def bin_of(edges: Integers, seconds: int) -> int:
    """Return the bin that whole seconds >= 1 lie in."""
    low = 0
    high = BINS
    while low < high:
        middle = (low + high) >> 1
        if edges[middle + 1] <= seconds:
            low = middle + 1
        else:
            high = middle
    return min(low, BINS - 1)


@compiled
def _level(habits: Habits, kind: int, key: int) -> int:
    runs = habits.runs[kind, key]
    if runs[0] == 0:
        return 0
    if runs[1] == 0:
        return 1
    apart = abs(bin_of(habits.edges, runs[0]) - bin_of(habits.edges, runs[1]))
    if apart <= 1:
        return 2
    return 3 if apart <= NEAR_BINS else 4


@compiled
def _past_runs(habits: Habits, job: int, request: int, most: int, values: Floats) -> None:
    """Write the seconds of each component of a job's mixture, below 1 where there is no such past."""
    for kind in range(KEYS):
        runs = habits.runs[kind, habits.keys[kind, job]]
        for lag in range(LAGS):
            values[kind * LAGS + lag] = min(runs[lag], most)
    ratios = habits.ratios[habits.keys[KEYS - 1, job]]
    for lag in range(LAGS):
        if ratios[lag] > 0.0:
            values[RATIO + lag] = max(1.0, np.floor(ratios[lag] * request))
    values[REQUEST] = request


@compiled
def _mix(habits: Habits, job: int, limit: int, values: Floats, mass: Floats, expected: Floats) -> float:
    """Add up the mixture's mass in each bin up to ``limit`` and each bin's expected accuracy; return the total weight.

    The part of a component beyond the limit counts as within it, since the job ends there.
    """
    weights = habits.weights[habits.case[job]]
    indices = habits.bins[job]
    total = 0.0
    for index in range(BROAD):
        if values[index] < 1.0:
            indices[index] = -1
            continue
        at = bin_of(habits.edges, int(values[index]))
        indices[index] = at
        for wide in range(2):
            weight = weights[wide, index]
            total += weight
            for number in range(limit + 1):
                expected[number] += weight * habits.gain[wide, at, number]
                mass[number] += weight * habits.mass[wide, at, number]
            for number in range(limit + 1, BINS):
                mass[limit] += weight * habits.mass[wide, at, number]
    indices[BROAD] = limit
    broad: float = weights[0, BROAD] + weights[1, BROAD]
    for number in range(limit + 1):
        mass[number] += broad / (limit + 1)
        for other in range(limit + 1):
            expected[other] += broad / (limit + 1) * habits.gain[0, number, other]
    return total + broad


@compiled
def predict(habits: Habits, job: int, request: int) -> int:
    """Forecast a job at its submission; return the seconds of highest expected accuracy, from 1 to the request.

    Its reliability and upper forecast are written to the state.
    """
    return predict_within(habits, job, request, request)


@compiled
def predict_within(habits: Habits, job: int, request: int, most: int) -> int:
    """Forecast a job that runs for at most ``most`` seconds; its request, or other forecast, is only a component."""
    own = habits.keys[KEYS - 1, job]
    habits.case[job] = _level(habits, 0, habits.keys[0, job]) * LEVELS + _level(habits, KEYS - 1, own)
    limit = bin_of(habits.edges, most)
    values = np.zeros(COMPONENTS)
    mass = np.zeros(BINS)
    expected = np.zeros(BINS)
    _past_runs(habits, job, request, most, values)
    total = _mix(habits, job, limit, values, mass, expected)
    best = 0
    for number in range(1, limit + 1):
        if expected[number] > expected[best]:
            best = number
    # Inside the best bin the answer is the mean of the runs that lie in it.
    weights = habits.weights[habits.case[job]]
    heavy = 0.0
    seconds = 0.0
    for index in range(BROAD):
        if habits.bins[job, index] == best:
            heavy += weights[0, index] + weights[1, index]
            seconds += (weights[0, index] + weights[1, index]) * values[index]
    answer = int(seconds / heavy + 0.5) if heavy > 0.0 else int(habits.centres[best])
    answer = max(1, min(most, answer))
    reach = 0.0
    top = 0
    while top < limit and reach + mass[top] < habits.level[0] * total:
        reach += mass[top]
        top += 1
    habits.upper[job] = max(answer, min(habits.edges[top + 1], most))
    estimate = min(expected[best] / total, 1.0)
    cell = min(int(estimate * CELLS), CELLS - 1)
    habits.cell[job] = cell
    habits.reliability[job] = (habits.outcomes[1, cell] + CELL_PRIOR * estimate) / (
        habits.outcomes[0, cell] + CELL_PRIOR
    )
    return answer


@compiled
def note_habit(habits: Habits, job: int, run: int, request: int, forecast: int) -> int:
    """Learn of a finished job, ``forecast`` being the answer at its submission; return its run time."""
    at = bin_of(habits.edges, run)
    case = habits.case[job]
    weights = habits.weights[case]
    indices = habits.bins[job]
    habits.counts[case] += 1
    step = max(LEAST_STEP, 1.0 / (habits.counts[case] + PRIOR_COUNT))
    present = 0.0
    total = 0.0
    chance = np.zeros((2, COMPONENTS))
    for index in range(COMPONENTS):
        if indices[index] < 0:
            continue
        for wide in range(2):
            likely = 1.0 / (indices[index] + 1)
            if index != BROAD:
                likely = habits.mass[wide, indices[index], at]
            elif at > indices[index]:
                likely = 0.0
            chance[wide, index] = weights[wide, index] * likely
            total += chance[wide, index]
            present += weights[wide, index]
    if total > 0.0:
        for index in range(COMPONENTS):
            if indices[index] >= 0:
                for wide in range(2):
                    share = chance[wide, index] / total * present
                    weights[wide, index] += step * (share - weights[wide, index])
    missed = 1.0 if run > habits.upper[job] else 0.0
    level = habits.level[0] + LEVEL_STEP * (missed - (1.0 - UPPER_SHARE))
    habits.level[0] = min(max(level, LEVELS_TAKEN[0]), LEVELS_TAKEN[1])
    cell = habits.cell[job]
    habits.outcomes[0, cell] += 1.0
    habits.outcomes[1, cell] += min(run, forecast) / max(run, forecast)
    for kind in range(KEYS):
        runs = habits.runs[kind, habits.keys[kind, job]]
        for lag in range(LAGS - 1, 0, -1):
            runs[lag] = runs[lag - 1]
        runs[0] = run
    ratios = habits.ratios[habits.keys[KEYS - 1, job]]
    for lag in range(LAGS - 1, 0, -1):
        ratios[lag] = ratios[lag - 1]
    ratios[0] = run / request
    return run

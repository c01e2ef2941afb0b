"""Experiment services: precision, recall and F1 of the latency guard by service, from the first sample to the
thousandth.

Called by ``cotide experiment services``. Two waves of unlike services (`population`): the second appears when the first
has a thousand samples of each. At each age all contenders learn from the same samples and judge the same rows, of cells
that no service learned from, in no table. A node is refused where a contender's probability is above the guard's
threshold. The baselines by service choose their settings on held-out cells of the service's own samples
(`evaluation.trial_choice`); ours runs as it ships. Two contenders refuse and accept everything.
Invariant: same tables, seeds and settings, same numbers; the services are those of the first seed, the others draw
other samples and other cells.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.config import SchedulerConfig
from cotide_core.errors import ModelError
from cotide_core.forecasting.heuristics import HeuristicQos
from cotide_core.forecasts import MixBatch, QosForecaster, QosSamples
from cotide_core.kernels.array_types import Floats
from cotide_lab.experiments.services.judgement import Outcome, Report, judge
from cotide_lab.experiments.services.population import Family, Service, draw_services, measure, read_tables, split
from cotide_lab.predictors.evaluation.baselines import ACCEPT_ALL, PAPER_TREES, RATE_ONLY, REFUSE_ALL, QosBaseline
from cotide_lab.predictors.evaluation.baselines import LOGISTIC as LOGISTIC_METHOD
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.qos.mixes import take_mixes
from cotide_predictors.qos.qos_model import QosModel, train_qos
from cotide_sim.traces.colocation.tables import concatenate_qos

OURS: Final = "by service, pooled (cotide)"
HEURISTIC: Final = "heuristic only"
POOLED: Final = "one pooled model (before)"
LOGISTIC: Final = "logistic regression by service"
TREES: Final = "xgboost by service"
RATE: Final = "rate only, by service"
CONTENDERS: Final = (OURS, HEURISTIC, POOLED, LOGISTIC, TREES, RATE, REFUSE_ALL, ACCEPT_ALL)
METHODS: Final = {
    LOGISTIC: LOGISTIC_METHOD,
    TREES: PAPER_TREES,
    RATE: RATE_ONLY,
    REFUSE_ALL: REFUSE_ALL,
    ACCEPT_ALL: ACCEPT_ALL,
}
"""Baselines that know a service by its own samples alone, and their methods."""
BASELINES: Final = (LOGISTIC, TREES, RATE)
"""Each is compared with ours; the strongest counts."""
AGES: Final = (1, 10, 30, 100, 200, 500, 1000)
"""Numbers of samples of a service when it is judged."""
SERVICES: Final = 12
WAVES: Final = 2
JUDGED_ROWS: Final = 1000
"""Rows that each service is judged on."""
THRESHOLD: Final = SchedulerConfig().qos_risk_threshold
Measured = tuple[MixBatch, Floats]


@dataclass(frozen=True, slots=True)
class _Wave:
    """Services that appear together, the samples of each in order, and the rows of their judgement."""

    services: list[Service]
    learned: list[Measured]
    judged: list[Measured]


def run(
    directory: Path | None,
    *,
    seeds: Sequence[int],
    services: int = SERVICES,
    ages: Sequence[int] = AGES,
    workers: int = 1,
    progress: Callable[[str], object] = str,
) -> Report:
    """Play every seed and judge.

    Parameters
    ----------
    directory : of the measured tables; None generates some.
    seeds : the first draws the services, each draws its own samples and cells; at least two, for intervals.
    services : in both waves together.
    ages : samples at which services are judged, rising.
    workers : processes, one seed each.
    """
    work = partial(play, directory, services=services, ages=tuple(ages), population=seeds[0])
    outcomes: list[Outcome] = []
    if workers > 1:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            for seed, found in zip(seeds, pool.map(work, seeds), strict=True):
                progress(f"seed {seed} is done")
                outcomes.extend(found)
    else:
        for seed in seeds:
            outcomes.extend(work(seed))
            progress(f"seed {seed} is done")
    drawn = draw_services(list(read_tables(directory)), services, seeds[0])
    return judge(outcomes, drawn, THRESHOLD, ours=OURS, baselines=BASELINES, heuristic=HEURISTIC)


@on_one_thread
def play(directory: Path | None, seed: int, *, services: int, ages: Sequence[int], population: int) -> list[Outcome]:
    """Return the outcomes of one seed: each contender about each service at each age."""
    found = read_tables(directory)
    families = split(found, seed)
    drawn = draw_services(list(found), services, population)
    generator = np.random.default_rng((seed, 2))
    size = -(-services // WAVES)
    known: list[Measured] = []
    outcomes: list[Outcome] = []
    for first in range(0, services, size):
        wave = _appear(drawn[first : first + size], families, max(ages), generator)
        for age in ages:
            seen = [(take_mixes(mixes, np.arange(age)), latency[:age]) for mixes, latency in wave.learned]
            outcomes.extend(_outcomes(seed, age, wave, known, seen))
        known.extend(wave.learned)
    return outcomes


def _appear(services: list[Service], families: dict[str, Family], most: int, generator: np.random.Generator) -> _Wave:
    learned, judged = [], []
    for service in services:
        family = families[service.family]
        learned.append(measure(service, family, family.learned, most, generator))
        judged.append(measure(service, family, family.judged, JUDGED_ROWS, generator))
    return _Wave(services, learned, judged)


def _outcomes(seed: int, age: int, wave: _Wave, known: list[Measured], seen: list[Measured]) -> list[Outcome]:
    together = concatenate_qos([QosSamples(*pair) for pair in (*known, *seen)])
    heuristic = HeuristicQos()
    ours: QosForecaster = heuristic
    with suppress(ModelError):  # the gate refused it: until there is more, the heuristic decides, and is judged as ours
        ours = train_qos(together, random_state=seed)
    pooled = QosModel(random_state=seed).fit(together.mixes, together.latency_milliseconds)
    outcomes = []
    for service, own, (asked, latency) in zip(wave.services, seen, wave.judged, strict=True):
        limit = service.limit_milliseconds
        probabilities = {
            OURS: ours.violation_probability(asked),
            HEURISTIC: heuristic.violation_probability(asked),
            POOLED: pooled.unbounded_probability(asked),
        }
        for name, method in METHODS.items():
            baseline = QosBaseline(method=method, limit_milliseconds=limit, random_state=seed)
            probabilities[name] = baseline.fit(*own).violation_probability(asked)
        broken = latency > limit
        outcomes += [
            Outcome.of(seed, service.name, age, name, probability, broken, THRESHOLD)
            for name, probability in probabilities.items()
        ]
    return outcomes

"""Rows a second of the two predictors, as the engine calls them, beside what their libraries do bare.

One command, no input: ``python benchmarks/predictors/bench_predictors.py``. Models are trained on generated samples of
the size of the measured tables. The bare figure is `Booster.inplace_predict` on a ready matrix with the same trees, so
that the ratio shows what features, base and calibration add; absolute figures move with the machine, ratios less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xgboost

from cotide_core.forecasts import CompletionSamples, MixBatch, QosSamples
from cotide_predictors.completion.completion_model import train_completion
from cotide_predictors.qos.mix_features import feature_matrix
from cotide_predictors.qos.qos_model import train_qos

TYPES = ("aggregate", "grep", "join", "md5", "sample", "select", "sort", "wordcount")
SIZES = (1, 100, 1_000, 4_000)
REPETITIONS = 7


def mixes(rows: int, seed: int) -> MixBatch:
    generator = np.random.default_rng(seed)
    counts = generator.poisson(0.2, (rows, len(TYPES))).astype(np.float64)
    return MixBatch(
        requests_per_second=generator.uniform(0, 140_000, rows),
        other_requests_per_second=np.zeros(rows),
        limit_milliseconds=np.full(rows, 10.0),
        cpu_pressure=0.125 * counts.sum(axis=1),
        types=TYPES,
        counts=counts,
        input_bytes=counts * generator.uniform(2e7, 6e8, (rows, len(TYPES))),
    )


def of_services(asked: MixBatch, services: int) -> MixBatch:
    """Return the same mixes, each about one of so many services of 1 to 100 ms, under a limit of three times that."""
    service = np.arange(len(asked)) % services
    limit = 3.0 * np.logspace(0.0, 2.0, services)[service]
    names = tuple(f"shop/{number}" for number in range(services))
    return replace(asked, limit_milliseconds=limit, services=names, service=service)


def seconds_of(call: Callable[[], object], repetitions: int = REPETITIONS) -> float:
    """Return the median over repetitions of the mean time of a call, in rounds of at least 20 ms."""
    call()
    times = []
    for _ in range(repetitions):
        calls, started = 0, time.perf_counter()
        while time.perf_counter() - started < 0.02:
            call()
            calls += 1
        times.append((time.perf_counter() - started) / calls)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    known = mixes(546, 1)
    pull = 1 + known.counts.sum(axis=1)
    latency = 0.5 * (1 + known.requests_per_second / 50_000) * pull
    started = time.perf_counter()
    model = train_qos(QosSamples(known, latency), limits_milliseconds=(1.0, 2.0, 5.0, 10.0))
    figures: dict[str, float] = {"qos_training_seconds": time.perf_counter() - started}
    for rows in SIZES:
        asked = mixes(rows, 2)
        ready = feature_matrix(asked, model.contention_)
        booster = xgboost.Booster({"nthread": 1}, model_file=bytearray(model.ensemble_.booster_bytes_))
        bare = seconds_of(lambda ready=ready, trees=booster: trees.inplace_predict(ready, validate_features=False))  # type: ignore[misc]  # bound now
        ours = seconds_of(lambda asked=asked: model.violation_probability(asked))  # type: ignore[misc]  # bound now
        figures[f"qos_{rows}_rows_microseconds"] = ours * 1e6
        figures[f"qos_{rows}_rows_per_second"] = rows / ours
        figures[f"qos_{rows}_rows_over_bare_xgboost"] = ours / bare
    many = of_services(mixes(3_000, 4), 20)
    noise = np.exp(0.1 * np.random.default_rng(5).standard_normal(len(many)))
    stretch = (1 + many.requests_per_second / 50_000) * (1 + many.counts.sum(axis=1))
    started = time.perf_counter()
    unlike = train_qos(QosSamples(many, noise * stretch * many.limit_milliseconds / 6.0))
    figures["services_training_seconds"] = time.perf_counter() - started
    for rows in SIZES:
        asked = of_services(mixes(rows, 2), 20)
        tight = replace(asked, limit_milliseconds=asked.limit_milliseconds / 100.0)
        figures[f"services_{rows}_rows_microseconds"] = 1e6 * seconds_of(lambda asked=asked: unlike.answer(asked))  # type: ignore[misc]  # bound now
        figures[f"services_outside_{rows}_rows_microseconds"] = 1e6 * seconds_of(
            lambda tight=tight: unlike.answer(tight)
        )  # type: ignore[misc]  # bound now
    generator = np.random.default_rng(3)
    names = tuple(generator.choice(TYPES, 504).tolist())
    size, rate = generator.uniform(2e7, 6e8, 504), generator.uniform(0, 140_000, 504)
    run_time = size / 1e8 * np.exp(rate / 100_000)
    started = time.perf_counter()
    completion = train_completion(CompletionSamples(names, size, rate, np.full(504, 0.25), run_time))
    figures["completion_training_seconds"] = time.perf_counter() - started
    for rows in SIZES:
        types = tuple(generator.choice(TYPES, rows).tolist())
        sizes, nothing = generator.uniform(2e7, 6e8, rows), np.full(rows, np.nan)
        rates, pressure = np.full(rows, 5e4), np.full(rows, 0.25)
        lone = seconds_of(lambda t=types, s=sizes, n=nothing: completion.isolated_seconds(t, s, n))  # type: ignore[misc]  # bound now
        factor = seconds_of(lambda t=types, r=rates, p=pressure: completion.slowdown(t, r, p))  # type: ignore[misc]  # bound now
        figures[f"completion_{rows}_rows_microseconds"] = lone * 1e6
        figures[f"completion_{rows}_rows_per_second"] = rows / lone
        figures[f"slowdown_{rows}_rows_microseconds"] = factor * 1e6
    if as_json:
        print(json.dumps({name: round(value, 4) for name, value in figures.items()}))
        return
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):44} {value:14,.2f}")


if __name__ == "__main__":
    main()

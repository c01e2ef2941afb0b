"""Speed of the lab's predictors: Kalman updates, density forecasts in batch, paths of 10,000 series.

    python benchmarks/predictors/bench_lab.py [--train]

Processor time, so that other programs on the machine count little. ``--train`` also trains the largest path network on
100 series of 8,000 slots, which takes minutes and the extra ``cotide[paths]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np

from cotide_lab.predictors.run_time.mixture_density.density_network import DensityNetwork
from cotide_lab.predictors.usage_path.attention_network import VARIANTS
from cotide_lab.predictors.usage_path.path_network import PathNetwork
from cotide_lab.predictors.usage_path.training import initial_parameters, trained
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.run_time.kalman.fixed_multiple import FixedMultipleKalman
from cotide_predictors.run_time.kalman.multi_layer import MultiLayerKalman

UPDATES, USERS, SERIES = 200_000, 500, 10_000


def seconds(work: Callable[[], object]) -> float:
    begin = process_time()
    work()
    return process_time() - begin


def kalman(generator: np.random.Generator) -> None:
    keys = generator.integers(0, USERS, UPDATES)
    rows, logs = generator.normal(size=(UPDATES, 7)), generator.normal(6.0, 2.0, UPDATES)
    jobs = np.arange(UPDATES)
    out = np.empty((UPDATES, 6))
    for kind in (FixedMultipleKalman, MultiLayerKalman):
        filters = kind().begin(USERS, 7)
        filters.walk(~jobs[:10], keys, rows, logs, out)  # compiled before the clock starts
        learned = seconds(partial(filters.walk, ~jobs, keys, rows, logs, out))
        asked = seconds(partial(filters.walk, jobs, keys, rows, logs, out))
        print(f"{kind.__name__}: {UPDATES / learned:,.0f} updates/s, {UPDATES / asked:,.0f} forecasts/s")


def density(generator: np.random.Generator) -> None:
    inputs, run = generator.normal(size=(20_000, 31)), np.exp(generator.normal(6.0, 2.0, 20_000))
    network = DensityNetwork(epochs=1).fit(inputs[:8000], run[:8000])
    asked = seconds(lambda: network.predict(inputs))
    learned = seconds(lambda: network.refit(inputs[:8000], run[:8000]))
    print(f"DensityNetwork: {1e6 * asked / len(inputs):.1f} us a job in batch, {learned:.2f} s a refit on 8,000 jobs")


@on_one_thread
def paths(generator: np.random.Generator) -> None:
    history = generator.random((SERIES, 300))
    for variant in VARIANTS:
        network = PathNetwork(variant, initial_parameters(variant, generator))
        network.forecast(history[:10])
        print(f"{variant}: {seconds(lambda network=network: network.forecast(history)):.2f} s for {SERIES:,} series")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", action="store_true")
    generator = np.random.default_rng(0)
    kalman(generator)
    density(generator)
    paths(generator)
    if parser.parse_args().train:
        history = generator.random((100, 8000))
        print(f"training: {seconds(lambda: trained(history, VARIANTS[-1])):.0f} s of processor time")


if __name__ == "__main__":
    main()

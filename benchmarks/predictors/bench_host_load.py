"""Time and memory of host-load forecasts: one step of ten thousand hosts, and a refit of a thousand.

One command, no input: ``python benchmarks/predictors/bench_host_load.py``. A step is a record taken in and the next
forecast given out: the ARMA recursion with its last-state correction and the feedback AR with its coefficients computed
anew (the paper's predictors), and the calibrated quantiles on top of each. Steps are timed by the wall clock, the
median of many, and by the process's own processor time, which a busy machine does not stretch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.arma import ArmaParameters, LastStateArma
from cotide_predictors.host_load.feedback_ar import FeedbackAr
from cotide_predictors.host_load.forecaster import ALLOCATED, HostLoadModel
from cotide_predictors.host_load.refit import refit

STEPS = 40
PLACEMENTS = 200


def loads(hosts: int, slots: int, seed: int) -> Floats:
    generator = np.random.default_rng(seed)
    noise = generator.normal(0, 0.03, (hosts, slots))
    for slot in range(1, slots):
        noise[:, slot] += 0.8 * noise[:, slot - 1]
    return np.clip(generator.uniform(0.2, 0.6, (hosts, 1)) + noise, 0, 1)


def step_milliseconds(step: Callable[[Floats], object], records: Floats) -> tuple[float, float]:
    """Return the medians of wall and processor time of a step, after half of the records warmed it up."""
    wall, own = [], []
    for slot in range(records.shape[1]):
        record = np.ascontiguousarray(records[:, slot])
        wall_start, own_start = time.perf_counter(), time.process_time()
        step(record)
        own.append((time.process_time() - own_start) * 1e3)
        wall.append((time.perf_counter() - wall_start) * 1e3)
    later = slice(records.shape[1] // 2, None)
    return statistics.median(wall[later]), statistics.median(own[later])


def paper_step(hosts: int) -> Callable[[Floats], object]:
    arma, feedback = LastStateArma(ArmaParameters.default(hosts)), FeedbackAr(hosts)

    def step(record: Floats) -> None:
        arma.record(record)
        arma.corrected()
        feedback.record(record)
        feedback.path(1)

    return step


def model_step(model: HostLoadModel) -> Callable[[Floats], object]:
    def step(record: Floats) -> None:
        model.record(record)
        model.forecast()

    return step


def show_progress(done: int, hosts: int) -> None:
    print(f"\rrefit: {done} of {hosts} hosts", end="" if done < hosts else "\n", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--refit-hosts", type=int, default=100, help="1000 for the full figure, which takes minutes")
    parser.add_argument("--refit-slots", type=int, default=2016)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    records = loads(asked.hosts, STEPS, 1)
    figures: dict[str, float] = {}
    online, allocated = HostLoadModel(asked.hosts), HostLoadModel(asked.hosts, centre=ALLOCATED)
    steps = {
        "arma_and_ar_with_update": paper_step(asked.hosts),
        "quantiles_online": model_step(online),
        "quantiles_allocated": model_step(allocated),
    }
    for name, step in steps.items():
        wall, own = step_milliseconds(step, records)
        figures[f"{name}_wall_milliseconds"], figures[f"{name}_cpu_milliseconds"] = wall, own
    figures["online_bytes_per_host"] = online.bytes_per_host()
    figures["allocated_bytes_per_host"] = allocated.bytes_per_host()
    placements = []
    for _ in range(PLACEMENTS):
        started = time.perf_counter()
        allocated.revise([1, 2, 3], np.full(3, 0.5))
        allocated.forecast()
        placements.append((time.perf_counter() - started) * 1e3)
    figures["placement_on_three_hosts_milliseconds"] = statistics.median(placements)
    histories = loads(asked.refit_hosts, asked.refit_slots, 2)
    started = time.perf_counter()
    refit(histories, workers=asked.workers, progress=show_progress)
    figures["refit_seconds"] = time.perf_counter() - started
    figures["refit_seconds_per_thousand_hosts"] = figures["refit_seconds"] * 1000 / asked.refit_hosts
    if asked.json:
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
        return
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):44} {value:14,.2f}")


if __name__ == "__main__":
    main()

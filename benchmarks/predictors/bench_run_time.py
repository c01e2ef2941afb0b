"""Run-time forecasts: predictions and updates a second of the online regression, histories, trees.

One command, no input: ``python benchmarks/predictors/bench_run_time.py``; ``--swf LOG`` takes a real log instead of a
generated one. The compiled kernels are called once before the clock starts. "Pairs" are one prediction and one update
each, the log's events in order; the dense bound is one numpy dot product of 153 terms a pair, without features and
without an update. Times are of the processor, the best of some repetitions: other processes on the machine count
little.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cotide_lab.experiments.backfilling.run_times import run_log
from cotide_lab.predictors.run_time.hazard import HazardTrees
from cotide_lab.predictors.run_time.online import OnlineRunTimes
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.run_time.history import snapshots
from cotide_predictors.run_time.jobs import JobTable, RunLog, codes, event_order
from cotide_predictors.run_time.regression import TERMS, OnlineRegression, table_4_1
from cotide_predictors.run_time.tree_features import tree_features
from cotide_sim.traces.jobs.swf import read_swf

TARGET_PER_SECOND = 200_000
REPETITIONS = 5
LEARNED = 8000


def generated(count: int) -> RunLog:
    generator = np.random.default_rng(1)
    submit = np.cumsum(generator.exponential(400, count)).round()
    user = generator.integers(0, 200, count)
    run = np.exp(generator.normal(4 + user % 6, 1.2)).round().clip(1, 2e5)
    same = np.ones(count, dtype=np.int64)
    requested = np.exp(np.ceil(np.log(run) + generator.uniform(0, 2, count)))
    jobs = JobTable(submit, requested, generator.integers(1, 65, count).astype(np.float64), user, same, same, same)
    return RunLog(jobs, run, submit + generator.exponential(2000, count).round() + run)


def best_seconds(call: Callable[[], object], repetitions: int = REPETITIONS) -> float:
    times = []
    for _ in range(repetitions):
        started = time.thread_time()
        call()
        times.append(time.thread_time() - started)
    return min(times)


@on_one_thread
def measure(log: RunLog) -> dict[str, float]:
    jobs, count = log.jobs, len(log)
    events = event_order(jobs.submit_seconds, log.finish_seconds)
    keys = codes(jobs.user)
    started = time.perf_counter()
    rows = snapshots(keys, jobs, log.run_seconds, log.finish_seconds)
    features = table_4_1(rows, jobs)
    out = np.empty(count)
    OnlineRegression().walk(events[:10], features, log.run_seconds, out)
    first_call = time.perf_counter() - started
    history = best_seconds(lambda: snapshots(keys, jobs, log.run_seconds, log.finish_seconds))
    regression = best_seconds(lambda: OnlineRegression().walk(events, features, log.run_seconds, out))
    terms, weights = np.ones(TERMS), np.ones(TERMS)
    dense = best_seconds(lambda: [terms @ weights for _ in range(10_000)]) / 10_000
    seen = tree_features(log)
    learned = min(LEARNED, count - 1000)
    one = slice(0, learned)
    model = HazardTrees()
    fit = best_seconds(lambda: model.fit(seen.rows(one), log.run_seconds[one]), 2)
    asked = seen.rows(slice(learned, learned + 1000))
    batch = best_seconds(lambda: model.predict(asked).most_accurate())
    single = best_seconds(lambda: model.predict(asked.rows(slice(0, 1))).most_accurate())
    online = OnlineRunTimes(jobs)
    some = events[:4000].tolist()
    started = time.thread_time()
    for event in some:
        if event >= 0:
            online.submitted(event)
        else:
            online.completed(~event, float(log.run_seconds[~event]), float(log.finish_seconds[~event]))
    stepped = time.thread_time() - started
    return {
        "jobs": float(count),
        "first_call_seconds": first_call,
        "history_events_per_second": len(events) / history,
        "regression_pairs_per_second": count / regression,
        "numpy_dot_products_per_second": 1 / dense,
        "trees_fit_seconds": fit,
        "trees_learned_jobs": float(learned),
        "trees_distributions_per_second": 1000 / batch,
        "trees_one_distribution_milliseconds": 1e3 * single,
        "online_events_per_second": len(some) / stepped,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--swf", type=Path, help="a log in the Standard Workload Format")
    parser.add_argument("--jobs", type=int, default=50_000, help="of the generated log, at least 2,000")
    asked = parser.parse_args()
    found = measure(run_log(read_swf(asked.swf)) if asked.swf else generated(max(asked.jobs, 2000)))
    reached = found["regression_pairs_per_second"] >= TARGET_PER_SECOND
    if asked.json:
        print(json.dumps({**found, "target_pairs_per_second": TARGET_PER_SECOND, "reached": reached}))
    else:
        for name, value in found.items():
            print(f"{name.replace('_', ' '):40} {value:>16,.3f}")
        print(f"target of {TARGET_PER_SECOND:,} pairs a second: {'reached' if reached else 'MISSED'}")
    return 0 if reached else 3


if __name__ == "__main__":
    sys.exit(main())

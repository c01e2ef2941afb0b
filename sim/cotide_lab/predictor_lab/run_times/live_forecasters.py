"""The live operator's forecasters on batch logs, compared with the replay's and with simple rules.

Entries of the registry. Users act as namespaces, executables as owners, processors as the input size and the cores, and
requests as the completion model's forecasts. The request ends no job here, as live pods do not end at an estimate.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.habits.likeness import NAMESPACE_BYTES, REST_BYTES
from cotide_predictors.run_time.habits.live_catalogue import LivePredictor, live_forecaster
from cotide_predictors.run_time.habits.live_forecaster import LiveForecast
from cotide_predictors.run_time.habits.pod_run_times import HOUR_SECONDS
from cotide_predictors.run_time.jobs import RunLog, codes, event_order

UNASKED_SECONDS: Final = 3600.0
"""Request of a job without one (as in `heuristics`)."""


def live_forecasts(log: RunLog, name: LivePredictor) -> tuple[Floats, Floats]:
    """Return (n,) seconds of highest expected accuracy, and (n,) that nine in ten jobs shall not outlive."""
    jobs, count = log.jobs, len(log)
    kinds = (
        codes(jobs.user, jobs.executable, jobs.processors),
        codes(jobs.user, jobs.executable),
        codes(jobs.user, jobs.processors),
        codes(jobs.user),
    )
    requested = np.where(np.isnan(jobs.requested_seconds), UNASKED_SECONDS, jobs.requested_seconds)
    forecaster = live_forecaster(name, most_keys=max(1, count))
    point, upper = np.zeros(count), np.zeros(count)
    open_jobs: dict[int, LiveForecast] = {}
    for event in event_order(jobs.submit_seconds, log.finish_seconds).tolist():
        if event < 0:
            forecaster.learn(open_jobs.pop(~event), float(log.run_seconds[~event]))
            continue
        begin = int(kinds[3][event]).to_bytes(NAMESPACE_BYTES, "big")
        first, second, third, last = (begin + int(keys[event]).to_bytes(REST_BYTES, "big") for keys in kinds)
        made = open_jobs[event] = forecaster.forecast(
            (first, second, third, last),
            float(requested[event]),
            cores=float(jobs.processors[event]),
            hour=int(jobs.submit_seconds[event] // HOUR_SECONDS),
        )
        point[event], upper[event] = made.seconds, made.upper
    return point, upper

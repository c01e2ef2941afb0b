"""One log under one policy: calls the kernel and returns the schedule.

Called by `cotide simulate` and the benchmarks. Middle of the flow: jobs to start times. Invariant: the same jobs,
policy and forecasts give the same schedule, bit for bit; a schedule is only returned whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from cotide_core.kernels.conservative import replay_conservative
from cotide_core.kernels.easy import STOP, replay_queue
from cotide_core.kernels.plan import replay_plan
from cotide_core.kernels.platform import replay_platform
from cotide_core.kernels.run_forecasts import GIVEN, LAST_TWO, LEARNED, past_of
from cotide_core.kernels.slack import replay_slack
from cotide_sim.replay.policies import ReplayPolicy
from cotide_sim.traces.batch_jobs import BatchJobs, Integers

Runtime = Literal["request", "clairvoyant", "last-two", "learned"]
RUNTIMES: Final[tuple[Runtime, ...]] = ("request", "clairvoyant", "last-two", "learned")
"""What the policy believes of a run time: the user's request, the truth, the mean of the user's last two finished, or
what the user's habits make most accurate (`cotide_core.kernels.run_habits`)."""
_MODES: Final[dict[Runtime, int]] = {"last-two": LAST_TWO, "learned": LEARNED}

MIDDLING_PRIORITY: Final = 50
"""Under ``slack`` for every job: logs name no priorities; the slack is then the mean wait so far."""
_LOOK_SECONDS: Final = 0.1
"""How often a watched replay tells of its progress; chosen."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Start times of a log's jobs under one policy; arrays are (n,) int64 in the order of the jobs.

    Attributes
    ----------
    start : seconds.
    forecast : what was forecast of the run time at submission, seconds.
    promise : the first start that was promised, -1 where none was.
    rounds : rounds of decisions.
    wall_seconds : what the replay took, without compilation.
    """

    policy: str
    runtime: Runtime
    start: Integers
    forecast: Integers
    promise: Integers
    rounds: int
    wall_seconds: float


def run_policy(
    jobs: BatchJobs,
    policy: ReplayPolicy,
    runtime: Runtime = "request",
    *,
    one_by_one: bool = False,
    forecasts: Integers | None = None,
    watch: Callable[[int], None] | None = None,
) -> Schedule:
    """Replay a log.

    Parameters
    ----------
    runtime : where forecasts come from.
    one_by_one : decide after every single event instead of once a moment, as pyss does (queue policies only).
    forecasts : (n,) seconds, >= 1, to believe in place of ``runtime``; not for ``hybrid``, which makes its own.
    watch : called now and then and at the end, in this thread, with the number of jobs submitted so far.
    """
    _run(_SMALL, policy, runtime, one_by_one, None, np.zeros(2, dtype=np.int64))
    progress = np.zeros(2, dtype=np.int64)
    if watch is None:
        return _run(jobs, policy, runtime, one_by_one, forecasts, progress)
    outcome: list[Schedule] = []
    # The kernel holds no interpreter lock, so a thread of its own leaves this one free to look and to be interrupted.
    worker = threading.Thread(
        target=lambda: outcome.append(_run(jobs, policy, runtime, one_by_one, forecasts, progress))
    )
    worker.start()
    try:
        alive = True
        while alive:
            worker.join(_LOOK_SECONDS)
            alive = worker.is_alive()
            watch(int(progress[0]))
    finally:
        progress[STOP] = 1
        worker.join()
    return outcome[0]


def _run(
    jobs: BatchJobs,
    policy: ReplayPolicy,
    runtime: Runtime,
    one_by_one: bool,
    forecasts: Integers | None,
    progress: Integers,
) -> Schedule:
    numbers, user = np.unique(jobs.user, return_inverse=True)
    user = user.astype(np.int64)
    if len(numbers) and numbers[0] < 0:
        user = np.where(jobs.user < 0, -1, user)
    if policy.kernel == "platform" and runtime != "clairvoyant":
        runtime = "learned"  # it rests on forecasts with an estimated accuracy, whatever the others are told to believe
    forecast = (jobs.run if runtime == "clairvoyant" else jobs.request).copy()
    mode = _MODES.get(runtime, GIVEN)
    if forecasts is not None:
        forecast, mode = forecasts.copy(), GIVEN
    start = np.full(len(jobs), -1, dtype=np.int64)
    promise = np.full(len(jobs), -1, dtype=np.int64)
    past = past_of(mode, len(numbers), user, jobs.demand, jobs.request)
    log = (jobs.submit, jobs.run, jobs.demand, jobs.request, user, past, jobs.processors)
    begin = time.perf_counter()
    if policy.kernel == "queue":
        rounds = replay_queue(
            *log, policy.order, policy.backfill, mode, int(one_by_one), forecast, start, promise, progress
        )
    elif policy.kernel == "conservative":
        rounds = replay_conservative(*log, mode, forecast, start, promise, progress)
    elif policy.kernel == "slack":
        priority = np.full(len(jobs), MIDDLING_PRIORITY, dtype=np.int64)
        rounds = replay_slack(*log, priority, mode, forecast, start, promise, progress)
    elif policy.kernel == "platform":
        trusted = np.full(len(jobs), runtime == "clairvoyant", dtype=np.int64)
        rounds = replay_platform(*log, mode, forecast, forecast.copy(), trusted, start, progress)
    else:
        rounds = replay_plan(*log, policy.order, mode, forecast, start, progress)
    wall = time.perf_counter() - begin
    return Schedule(policy.name, runtime, start, forecast, promise, int(rounds), wall)


def _few() -> BatchJobs:
    """Return two jobs: enough to have a kernel compiled before the clock starts."""
    two = np.ones(2, dtype=np.int64)
    return BatchJobs("", 1, two, two, two, two, two, two)


_SMALL: Final = _few()

"""One log under one policy: calls the kernel and returns the schedule.

Called by `cotide simulate` and the benchmarks. Middle of the flow: jobs to start times. Where boosted trees make
forecasts or their reliability, the kernel pauses every 24 simulated hours (or as configured). It goes on with new
trees, grown from the jobs that have ended in this schedule. Where forecasts are made job by job outside the kernel
(`sequential_feed`), it pauses before every submission. Invariant: the same jobs, policy, forecasts and seed give the
same schedule, bit for bit; a schedule is only returned whole.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar, cast

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.machine_platform import PREDICTABLE
from cotide_lab.predictors.run_time.boosted import DAY_SECONDS, TreeRefitter
from cotide_lab.predictors.run_time.kernels.run_forecasts import (
    GIVEN,
    LAST_TWO,
    LEARNED,
    RATED,
    TREES,
    TREES_RATED,
    Past,
    past_of,
)
from cotide_lab.predictors.run_time.sequential.catalogue import SEQUENTIAL, Sequential
from cotide_lab.trace_replay.kernels.conservative import ConservativeRule, replay_conservative
from cotide_lab.trace_replay.kernels.easy import QueueRule, replay_queue
from cotide_lab.trace_replay.kernels.event_loop import STOP
from cotide_lab.trace_replay.kernels.fair import fair_rule, replay_fair
from cotide_lab.trace_replay.kernels.plan import PlanRule, replay_plan
from cotide_lab.trace_replay.kernels.platform import platform_rule, replay_platform
from cotide_lab.trace_replay.kernels.printed_platform import printed_rule, replay_printed
from cotide_lab.trace_replay.kernels.replay_state import ARRIVED, NEVER, RUNNING, WAITING, Jobs, new_replay_state
from cotide_lab.trace_replay.kernels.set_plan import replay_set_plan, set_plan_rule
from cotide_lab.trace_replay.kernels.slack import MIDDLING_PRIORITY, replay_slack, slack_rule
from cotide_lab.trace_replay.policies import PLATFORMS, ReplayPolicy
from cotide_lab.trace_replay.sequential_feed import FeedColumns, SequentialFeed
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

Runtime = Literal["request", "clairvoyant", "last-two", "learned", "trees"] | Sequential
RUNTIMES: Final[tuple[Runtime, ...]] = ("request", "clairvoyant", "last-two", "learned", "trees", *SEQUENTIAL)
"""The forecast of a run time: the user's request, the truth, or the mean of the user's last two finished jobs. Or the
most accurate by the user's habits (`cotide_predictors.run_time.kernels.run_habits`), by boosted trees
(`tree_forecasts`), or by a forecaster of `cotide_predictors.run_time.sequential`."""
T = TypeVar("T")
Reliability = Literal["mixture", "trees", "nobody", "everybody"]
RELIABILITIES: Final[tuple[Reliability, ...]] = ("mixture", "trees", "nobody", "everybody")
"""Where the platforms have the estimated accuracy of a forecast from: the forecast's own distribution, or boosted
trees. With the last two all jobs count alike, which shows the worth of the distinction."""
THRESHOLDS: Final[dict[Reliability, float]] = {"nobody": math.inf, "everybody": -math.inf}
"""Least accuracy of a predictable job, where it is not `PREDICTABLE`."""

_POLL_SECONDS: Final = 0.1
"""How often a watched replay reports its progress; chosen."""


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
    reliability : the measure of predictable jobs on a platform; None where nothing does.
    rebuilds : times that trees were grown.
    upper : (n,) seconds that few runs outlive, as forecast at submission; None where no source gives it.
    """

    policy: str
    runtime: Runtime
    start: Integers
    forecast: Integers
    promise: Integers
    rounds: int
    wall_seconds: float
    reliability: Reliability | None = None
    rebuilds: int = 0
    upper: Integers | None = None

    @property
    def source(self) -> str:
        """Return where forecasts come from, in words."""
        if self.reliability == "trees":
            return f"{self.runtime}, rated by trees"
        return f"{self.runtime}, {self.reliability} predictable" if self.reliability in THRESHOLDS else self.runtime


@dataclass(frozen=True, slots=True)
class GivenForecasts:
    """Forecasts made elsewhere; arrays are (n,) int64 in the order of the jobs.

    Attributes
    ----------
    point : seconds, >= 1. upper : seconds that few runs outlive, at least the point.
    predictable : 1 where the forecast is to be relied on, else 0; ``hybrid`` plans those.
    """

    point: Integers
    upper: Integers
    predictable: Integers


def run_policy(
    jobs: BatchJobs,
    policy: ReplayPolicy,
    runtime: Runtime = "request",
    *,
    reliability: Reliability = "mixture",
    seed: int = 0,
    one_by_one: bool = False,
    forecasts: Integers | GivenForecasts | None = None,
    rebuild_seconds: int = DAY_SECONDS,
    watch: Callable[[int], None] | None = None,
) -> Schedule:
    """Replay a log.

    It takes many arguments, because each is one choice that a replay leaves to its caller.

    Parameters
    ----------
    runtime : where forecasts come from.
    reliability : the source of the estimated accuracy for ``hybrid``; other policies do not use it.
    seed : of what trees and the network draw.
    one_by_one : decide after every single event instead of once a moment (queue policies only); for EASY exactly as
    pyss does, see `event_by_event`.
    forecasts : (n,) seconds, >= 1, to believe in place of ``runtime``; ``hybrid``, which makes its own, takes
        `GivenForecasts` alone.
    rebuild_seconds : simulated time between two rebuilds of trees, or refits of the network.
    watch : called now and then and at the end, in this thread, with the number of jobs submitted so far.

    Raises
    ------
    InputError
        When trees are to rate forecasts that they can't, or shares of groups are asked for where there are none.
    """
    believed = replace(_Believed.of(policy, runtime, reliability, seed), rebuild_seconds=rebuild_seconds)
    _run(_SMALL, policy, believed, one_by_one, None, np.zeros(2, dtype=np.int64))
    progress = np.zeros(2, dtype=np.int64)
    if watch is None:
        return _run(jobs, policy, believed, one_by_one, forecasts, progress)
    return run_watched(lambda: _run(jobs, policy, believed, one_by_one, forecasts, progress), progress, watch)


def run_watched(run: Callable[[], T], progress: Integers, watch: Callable[[int], None]) -> T:
    """Return the result of a replay, and report its progress meanwhile.

    Parameters
    ----------
    run : its kernel holds no interpreter lock, so that this thread can report and can be interrupted.
    progress : the replay's, see `event_loop.replay`.
    watch : called now and then and at the end, in this thread, with the number of jobs submitted so far.
    """
    outcome: list[T] = []
    worker = threading.Thread(target=lambda: outcome.append(run()))
    worker.start()
    try:
        alive = True
        while alive:
            worker.join(_POLL_SECONDS)
            alive = worker.is_alive()
            watch(int(progress[0]))
    finally:
        progress[STOP] = 1
        worker.join()
    return outcome[0]


@dataclass(frozen=True, slots=True)
class _Believed:
    """What a replay believes of run times: names, the kernels' mode, the seed of trees."""

    runtime: Runtime
    reliability: Reliability | None
    mode: int
    seed: int
    rebuild_seconds: int = DAY_SECONDS

    @property
    def sequential(self) -> Sequential | None:
        """Return the forecaster that is asked at pauses, if any."""
        return next((name for name in SEQUENTIAL if name == self.runtime), None)

    @property
    def threshold(self) -> float:
        """Return the least accuracy of a predictable job."""
        return PREDICTABLE if self.reliability is None else THRESHOLDS.get(self.reliability, PREDICTABLE)

    @classmethod
    def of(cls, policy: ReplayPolicy, runtime: Runtime, reliability: Reliability, seed: int) -> _Believed:
        rates = policy.kernel in PLATFORMS and runtime != "clairvoyant"
        if runtime in SEQUENTIAL:
            if rates and reliability == "trees":
                raise InputError(f"trees rate the forecasts of learned and trees, not {runtime}", field="--reliability")
            return cls(runtime, reliability if rates and reliability in THRESHOLDS else None, GIVEN, seed)
        if rates and runtime != "trees":
            runtime = "learned"  # it needs forecasts with an estimated accuracy, whatever the other policies use
        by_trees = rates and reliability == "trees"
        modes = {
            "last-two": LAST_TWO,
            "learned": RATED if by_trees else LEARNED,
            "trees": TREES_RATED if by_trees else TREES,
        }
        return cls(runtime, reliability if rates else None, modes.get(runtime, GIVEN), seed)


def _run(
    jobs: BatchJobs,
    policy: ReplayPolicy,
    believed: _Believed,
    one_by_one: bool,
    forecasts: Integers | GivenForecasts | None,
    progress: Integers,
) -> Schedule:
    numbers, user = np.unique(jobs.user, return_inverse=True)
    user = user.astype(np.int64)
    if len(numbers) and numbers[0] < 0:
        user = np.where(jobs.user < 0, -1, user)
    forecast = (jobs.run if believed.runtime == "clairvoyant" else jobs.request).copy()
    mode = believed.mode
    given = forecasts if isinstance(forecasts, GivenForecasts) else None
    if forecasts is not None:
        point = given.point if given is not None else cast(Integers, forecasts)
        forecast, mode = point.copy(), GIVEN
    start = np.full(len(jobs), -1, dtype=np.int64)
    promise = np.full(len(jobs), -1, dtype=np.int64)
    state = new_replay_state(len(jobs))
    columns = Jobs(jobs.submit, jobs.run, jobs.demand, jobs.request, user, forecast, start, promise)
    past = past_of(mode, len(numbers), user, jobs.demand, jobs.request, jobs.submit)
    knows_all = believed.runtime == "clairvoyant"
    if given is None:
        given = GivenForecasts(forecast, forecast, np.full_like(jobs.submit, knows_all))
    given = GivenForecasts(given.point, given.upper.copy(), given.predictable.copy())
    if policy.kernel == "fair":
        kernel, rule = _fair_kernel_and_rule(policy, jobs)
    else:
        kernel, rule = _kernel_and_rule(policy, jobs.processors, columns, mode, past, given, believed)
    refitter = TreeRefitter(mode, jobs.submit, seed=believed.seed, every_seconds=believed.rebuild_seconds)
    feed = None
    if forecasts is None and believed.sequential is not None:
        feed = SequentialFeed(
            believed.sequential,
            jobs,
            FeedColumns(forecast, given.upper, given.predictable, start),
            threshold=believed.threshold,
            seed=believed.seed,
            rebuild_seconds=believed.rebuild_seconds,
        )
    begin = time.perf_counter()
    rounds = 0
    while not (progress[STOP] or (rounds > 0 and state.counts[ARRIVED] == len(jobs) and _is_idle(state.counts))):
        at = refitter.next_pause(int(state.counts[ARRIVED]))
        if feed is not None:
            state.until[0] = feed.advance(int(state.counts[ARRIVED]))
        elif state.until[0] < at < NEVER:  # nothing was submitted in the period that has just begun
            state.until[0] = at
        elif at < NEVER:
            # A job that has not started has no end; one that runs on ends after this moment, by whatever its run is.
            finish = np.where((start >= 0) & (start < at), start + jobs.run, NEVER)
            past = refitter.grown(past, at, jobs.run, finish, forecast)
            state.until[0] = at + believed.rebuild_seconds
        else:
            state.until[0] = NEVER
        rounds = int(kernel(columns, past, mode, int(one_by_one), progress, state, rule))
    wall = time.perf_counter() - begin
    return Schedule(
        policy.name,
        believed.runtime,
        start,
        forecast,
        promise,
        rounds,
        wall,
        believed.reliability,
        refitter.rebuilds,
        past.upper if mode >= LEARNED else None,
    )


def _fair_kernel_and_rule(policy: ReplayPolicy, jobs: BatchJobs) -> tuple[Callable[..., int], tuple[Any, ...]]:
    """Return the kernel that keeps shares, and the owners of the jobs.

    Raises
    ------
    InputError
        When shares of groups are asked for and the jobs have none.
    """
    owner = jobs.user if policy.owners == "user" else jobs.group
    if owner is None:
        raise InputError("these jobs have no groups; shares are kept by user", field="--shares-of")
    return replay_fair, fair_rule(jobs.processors, policy.half_life_seconds, owner)


def _kernel_and_rule(
    policy: ReplayPolicy,
    capacity: int,
    jobs: Jobs,
    mode: int,
    past: Past,
    given: GivenForecasts,
    believed: _Believed,
) -> tuple[Callable[..., int], tuple[Any, ...]]:
    """Return a policy's kernel and its other arguments."""
    if policy.kernel == "queue":
        return replay_queue, QueueRule(capacity, policy.order, policy.backfill)
    if policy.kernel == "conservative":
        return replay_conservative, ConservativeRule(capacity)
    if policy.kernel == "slack":
        return replay_slack, slack_rule(capacity, np.full_like(jobs.submit, MIDDLING_PRIORITY))
    if policy.kernel == "set-plan":
        return replay_set_plan, set_plan_rule(capacity, policy.order, len(jobs.submit))
    if policy.kernel in PLATFORMS:
        platform = platform_rule(
            capacity, mode, past, given.upper, given.predictable, threshold=believed.threshold, settings=policy.platform
        )
        if policy.kernel == "platform":
            return replay_platform, platform
        return replay_printed, printed_rule(platform)
    return replay_plan, PlanRule(capacity, policy.order)


def _is_idle(counts: Integers) -> bool:
    return bool(counts[RUNNING] == 0 and counts[WAITING] == 0)


def _few() -> BatchJobs:
    """Return two jobs: enough to have a kernel compiled before the clock starts."""
    two = np.ones(2, dtype=np.int64)
    return BatchJobs("", 1, two, two, two, two, two, two, two)


_SMALL: Final = _few()

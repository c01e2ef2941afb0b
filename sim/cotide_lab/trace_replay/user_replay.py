"""Replay of a log under a policy from a user's file: a plain event loop around their decisions.

Called by `cotide simulate`. Middle of the flow: jobs to start times. Invariants: rounds take place at the same moments
as in the kernels (a submission, an end, a forecast exceeded; ends first, then submissions, then one decision). The same
functions make forecasts, so that the same policy gives the same schedule. Of a run time a policy sees its forecast
alone.
"""

from __future__ import annotations

import heapq
import time
from bisect import insort
from collections.abc import Callable
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.machine_platform import PREDICTABLE
from cotide_lab.predictors.run_time.boosted import DAY_SECONDS, TreeRefitter
from cotide_lab.predictors.run_time.kernels.run_forecasts import (
    GIVEN,
    LAST_TWO,
    LEARNED,
    TREES,
    corrected,
    forecast_at_submit,
    learn,
    past_of,
)
from cotide_lab.predictors.run_time.sequential.catalogue import SEQUENTIAL
from cotide_lab.trace_replay.kernels.replay_state import NEVER
from cotide_lab.trace_replay.runner import Runtime, Schedule
from cotide_lab.trace_replay.sequential_feed import FeedColumns, SequentialFeed
from cotide_lab.trace_replay.user_policy import Job, Machine, Queue, UserPolicy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

MODES: Final[dict[Runtime, int]] = {"last-two": LAST_TWO, "learned": LEARNED, "trees": TREES}
"""Where forecasts are made in the replay; the others are given before it."""
WATCH_ROUNDS: Final = 1000
"""Rounds between two looks at the progress; chosen."""


def run_user_policy(
    jobs: BatchJobs,
    policy: UserPolicy,
    runtime: Runtime = "request",
    *,
    seed: int = 0,
    rebuild_seconds: int = DAY_SECONDS,
    watch: Callable[[int], None] | None = None,
) -> Schedule:
    """Replay a log.

    Parameters
    ----------
    seed : of what trees and the network draw.
    rebuild_seconds : simulated time between two rebuilds of trees, or refits of the network.
    watch : called now and then with the number of jobs submitted so far.

    Raises
    ------
    InputError
        When the user's code fails, chooses what does not fit, or leaves jobs waiting for ever.
    """
    policy.begin()
    begin = time.perf_counter()
    loop = _Loop(jobs, policy, runtime, seed, rebuild_seconds)
    rounds = loop.run(watch)
    promise = np.full(len(jobs), -1, dtype=np.int64)
    wall, rebuilds = time.perf_counter() - begin, loop.refitter.rebuilds
    return Schedule(policy.name, runtime, loop.start, loop.forecast, promise, rounds, wall, None, rebuilds)


class _Loop:
    def __init__(self, jobs: BatchJobs, policy: UserPolicy, runtime: Runtime, seed: int, rebuild_seconds: int) -> None:
        self.jobs, self.policy = jobs, policy
        known, numbered = np.unique(jobs.user, return_inverse=True)
        self.users: Integers = np.where(jobs.user < 0, -1, numbered).astype(np.int64)
        self.mode = MODES.get(runtime, GIVEN)
        self.past = past_of(self.mode, len(known), self.users, jobs.demand, jobs.request, jobs.submit)
        self.refitter = TreeRefitter(self.mode, jobs.submit, seed=seed, every_seconds=rebuild_seconds)
        self.next_growth = int(jobs.submit[0]) if self.mode == TREES else NEVER
        self.forecast: Integers = (jobs.run if runtime == "clairvoyant" else jobs.request).copy()
        self.start: Integers = np.full(len(jobs), -1, dtype=np.int64)
        sequential = next((name for name in SEQUENTIAL if name == runtime), None)
        self.feed: SequentialFeed | None = None
        if sequential is not None:
            unseen = np.zeros((2, len(jobs)), np.int64)  # what no policy of a user is shown
            columns = FeedColumns(self.forecast, unseen[0], unseen[1], self.start)
            self.feed = SequentialFeed(
                sequential, jobs, columns, threshold=PREDICTABLE, seed=seed, rebuild_seconds=rebuild_seconds
            )
        # As lists of Python numbers, which single look-ups are fastest in.
        self.submit, self.run_seconds = jobs.submit.tolist(), jobs.run.tolist()
        self.demand, self.request = jobs.demand.tolist(), jobs.request.tolist()
        self.queue: list[int] = []
        self.running: list[tuple[int, int]] = []
        self.events: list[tuple[int, int]] = []
        self.free = jobs.processors

    def run(self, watch: Callable[[int], None] | None) -> int:
        arrived = rounds = 0
        total = len(self.jobs)
        while arrived < total or self.events:
            rounds += 1
            now = min(
                self.submit[arrived] if arrived < total else self.events[0][0],
                self.events[0][0] if self.events else self.submit[arrived],
            )
            self._ends(now)
            if self.feed is not None and arrived < total and self.submit[arrived] == now:
                self.feed.advance(arrived)
            while arrived < total and self.submit[arrived] == now:
                self._submit(arrived)
                arrived += 1
            self._decide(now)
            if watch is not None and rounds % WATCH_ROUNDS == 0:
                watch(arrived)
        if self.queue:
            raise self.policy.refused(
                f"left {len(self.queue):,} jobs waiting for ever, job {self.jobs.numbers[self.queue[0]]} first"
            )
        return rounds

    def _ends(self, now: int) -> None:
        """End jobs, and correct the forecasts of those that have exceeded theirs."""
        while self.events and self.events[0][0] == now:
            _, job = heapq.heappop(self.events)
            index = next(at for at, (_, other) in enumerate(self.running) if other == job)
            del self.running[index]
            began = int(self.start[job])
            if began + self.run_seconds[job] > now:
                end = began + int(corrected(self.mode, job, self.request[job], now - began, self.past.upper))
                insort(self.running, (end, job))
                heapq.heappush(self.events, (min(end, began + self.run_seconds[job]), job))
                continue
            self.free += self.demand[job]
            user, said = int(self.users[job]), int(self.forecast[job])
            learn(self.mode, job, self.run_seconds[job], self.request[job], user, said, self.past)
            self.policy.emit("finished", self._job(job), self.run_seconds[job])

    def _submit(self, job: int) -> None:
        user = int(self.users[job])
        if self.submit[job] >= self.next_growth:
            at = self.refitter.next_pause(job)
            finish = np.where(self.start >= 0, self.start + self.jobs.run, NEVER)
            self.past = self.refitter.grown(self.past, at, self.jobs.run, finish, self.forecast)
            self.next_growth = at + self.refitter.every_seconds
        self.forecast[job] = forecast_at_submit(
            self.mode, job, int(self.forecast[job]), self.request[job], user, self.past
        )
        self.queue.append(job)
        self.policy.emit("submitted", self._job(job))

    def _decide(self, now: int) -> None:
        if not self.queue:
            return
        indices = self.policy.choose(self._shown_queue(), self._shown_machine(now))
        for index in indices:
            job = self.queue[index]
            if self.demand[job] > self.free:
                raise self.policy.refused(
                    f"chose job {self.jobs.numbers[job]} at {now} s, which needs {self.demand[job]} processors "
                    f"where {self.free} are free"
                )
            self.free -= self.demand[job]
            self.start[job] = now
            planned = now + int(self.forecast[job])
            insort(self.running, (planned, job))
            heapq.heappush(self.events, (min(planned, now + self.run_seconds[job]), job))
        for index in sorted(indices, reverse=True):
            del self.queue[index]

    def _shown_queue(self) -> Queue:
        rows, jobs = np.array(self.queue, dtype=np.intp), self.jobs
        return Queue(
            jobs.numbers[rows],
            jobs.submit[rows],
            jobs.demand[rows],
            jobs.request[rows],
            self.forecast[rows],
            jobs.user[rows],
        )

    def _shown_machine(self, now: int) -> Machine:
        rows, jobs = np.array([job for _, job in self.running], dtype=np.intp), self.jobs
        ends = np.array([end for end, _ in self.running], dtype=np.int64)
        return Machine(now, jobs.processors, self.free, jobs.numbers[rows], jobs.demand[rows], self.start[rows], ends)

    def _job(self, job: int) -> Job:
        return Job(
            int(self.jobs.numbers[job]),
            self.submit[job],
            self.demand[job],
            self.request[job],
            int(self.forecast[job]),
            int(self.jobs.user[job]),
        )

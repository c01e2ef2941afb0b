"""The hybrid platform: equal to a slow, obvious implementation, and its rules one by one on logs made by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_reference import Job, Pool, columns_of, logs, reference_platform, reference_printed_platform

from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN, LAST_TWO, LEARNED, past_of
from cotide_lab.trace_replay.kernels.platform import (
    PATIENCE,
    PATIENCE_SECONDS,
    PlatformSettings,
    platform_rule,
    replay_platform,
)
from cotide_lab.trace_replay.kernels.printed_platform import printed_rule, replay_printed
from cotide_lab.trace_replay.kernels.replay_state import new_replay_state

DAY = 86_400


def platform(jobs, capacity, mode=GIVEN, settings=None, printed=False):
    """Return the starts and which jobs counted as predictable."""
    log = columns_of(jobs)
    upper, predictable = (np.array([getattr(job, name) for job in jobs]) for name in ("upper", "predictable"))
    past = past_of(LEARNED, 2, log.user, log.demand, log.request)
    rule = platform_rule(capacity, mode, past, upper, predictable, settings=settings)
    kernel, rule = (replay_printed, printed_rule(rule)) if printed else (replay_platform, rule)
    kernel(log, past, mode, 0, np.zeros(2, dtype=np.int64), new_replay_state(len(jobs)), rule)
    return log.start.tolist(), predictable.tolist()


def by_hand(*rows):
    """Rows of (submit, run = forecast, processors, request, predictable)."""
    made = []
    for number, (submit, run, demand, request, predictable) in enumerate(rows):
        upper = run if predictable else request
        made.append(Job(number, submit, run, demand, request, 0, run, upper=upper, predictable=predictable))
    return made


@settings(max_examples=120, deadline=None)
@given(log=logs())
def test_the_platform_equals_the_reference_job_by_job(log):
    jobs, capacity, mode = log
    mode = GIVEN if mode == LAST_TWO else mode
    found = platform(jobs, capacity, mode)
    reference_platform(Pool(jobs, capacity, mode))
    assert found == ([job.start for job in jobs], [job.predictable for job in jobs])


@settings(max_examples=60, deadline=None)
@given(
    log=logs(), patience=st.tuples(st.integers(0, 3), st.integers(0, 3)), cap=st.integers(0, 20), most=st.integers(0, 3)
)
def test_settings_of_the_platform_mean_in_the_kernel_what_they_mean_in_the_reference(log, patience, cap, most):
    jobs, capacity, mode = log
    mode = GIVEN if mode == LAST_TWO else mode
    found = platform(jobs, capacity, mode, PlatformSettings(patience, cap, most))
    reference_platform(Pool(jobs, capacity, mode), patience, cap, most)
    assert found == ([job.start for job in jobs], [job.predictable for job in jobs])


@settings(max_examples=120, deadline=None)
@given(log=logs())
def test_the_platform_as_printed_equals_its_reference_job_by_job(log):
    jobs, capacity, mode = log
    mode = GIVEN if mode == LAST_TWO else mode
    found = platform(jobs, capacity, mode, printed=True)
    reference_printed_platform(Pool(jobs, capacity, mode))
    assert found == ([job.start for job in jobs], [job.predictable for job in jobs])


def test_as_printed_a_planned_job_goes_first_and_backfilling_leaves_its_start_alone():
    """Two processors, so a share of one. A runs on one until 10; B (predictable, 1) is planned for 0 on the other.

    C (unpredictable, asks 20 s on both) has its start reserved for 20, when B ends; D (asks 5 s on one) finds no
    processor at 0 and starts when A ends, at 10, since it is over before 20; E, which asks 15 s, would delay C.
    """
    rows = [(0, 10, 1, 10, 0), (0, 20, 1, 20, 1), (1, 20, 2, 20, 0), (2, 15, 1, 15, 0), (3, 5, 1, 5, 0)]
    assert platform(by_hand(*rows), 2, printed=True)[0] == [0, 0, 20, 40, 10]


def test_the_predictable_hold_their_share_and_are_lent_what_nobody_else_can_use():
    """Ten processors, so a share of six. Three predictable jobs of 3: two fill the share; the last of 4 is another's.

    With the unpredictable job of 3 there, the third predictable waits for the end of one of the first two; without it
    the third is lent three processors at once.
    """
    three = [(0, 10, 3, 10, 1), (0, 10, 3, 10, 1), (0, 10, 3, 10, 1)]
    assert platform(by_hand(*three, (0, 50, 3, 50, 0)), 10)[0] == [0, 0, 10, 0]
    assert platform(by_hand(*three), 10)[0] == [0, 0, 0]


def test_a_job_too_large_for_the_share_counts_as_unpredictable_and_may_use_all_processors():
    assert platform(by_hand((0, 10, 7, 10, 1), (0, 10, 3, 10, 1)), 10) == ([0, 0], [0, 1])


def test_the_share_follows_what_recent_jobs_asked_for():
    """After a thousand unpredictable jobs less than half of the first 0.6 is left: a job of 5 is too large then."""
    quiet = [(number, 1, 10, 1, 0) for number in range(1000)]
    assert platform(by_hand((0, 1, 5, 1, 1)), 10)[1] == [1]
    assert platform(by_hand(*quiet, (1000, 1, 5, 1, 1)), 10)[1][-1] == 0


def test_small_volumes_overtake_a_wide_job_until_it_is_overdue():
    """Two processors. A wide job (2, asks 10 s) waits behind one narrow job after the other, each 8 s on one processor.

    They come every 4 s. The unpredictable wide job has a start reserved once it waited 5 x 10 s: at 52, when a narrow
    job that runs since 48 ends at 56. No narrow job starts at 52, the wide one does at 56.
    """
    assert PATIENCE[0] == 5
    narrow = [(4 * number, 8, 1, 8, 1) for number in range(20)]
    wide = (1, 10, 2, 10, 0)
    rows = sorted([*narrow, wide])
    starts, _ = platform(by_hand(*rows), 2)
    assert starts[rows.index(wide)] == 56


def test_after_ten_days_a_job_has_a_start_reserved_whatever_it_asks_for():
    """The wide job asks for thirty days, so five times that is far away; narrow jobs of a day come twice a day."""
    half = DAY // 2
    narrow = [(half * number, DAY, 1, DAY, 1) for number in range(40)]
    wide = (1, 10, 2, 30 * DAY, 0)
    rows = sorted([*narrow, wide])
    starts, _ = platform(by_hand(*rows), 2)
    # It is overdue at ten days and a second; the narrow job that started at ten days runs until eleven.
    assert starts[rows.index(wide)] == 11 * DAY
    assert PATIENCE_SECONDS == 10 * DAY


def test_beside_a_reservation_a_job_is_planned_by_its_forecast_whatever_its_user_asks_for():
    """Two processors, one of them busy until eleven days. The wide job, which asks for thirty days, is reserved then.

    A short job asks for five days and its upper forecast is a minute. It comes half a day before the reservation.
    """
    rows = [(0, 11 * DAY, 1, 11 * DAY, 1), (1, 10, 2, 30 * DAY, 0), (10 * DAY + DAY // 2, 60, 1, 5 * DAY, 0)]
    jobs = by_hand(*rows)
    jobs[2].upper = 60
    assert platform(jobs, 2)[0] == [0, 11 * DAY, 10 * DAY + DAY // 2]


def test_forecasts_of_the_platform_use_nothing_that_is_not_over():
    """Change how long one job runs: up to its end, in either schedule, nothing else changes."""
    rng = np.random.default_rng(3)
    jobs = []
    for number in range(300):
        run = int(rng.choice([30, 300, 3000]))
        jobs.append(Job(number, 40 * number, run, int(rng.integers(1, 9)), 2 * run + 60, number % 2, 0))
    before, _ = platform(jobs, 16, LEARNED)
    changed = next(number for number in range(100, 300) if jobs[number].run == 3000)
    jobs[changed].run = 2000
    after, _ = platform(jobs, 16, LEARNED)
    end = before[changed] + 2000
    assert [start for start in before if start < end] == [start for start in after if start < end]
    assert before != after

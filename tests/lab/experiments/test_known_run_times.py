"""What the platform loses by not knowing: each use of a forecast is true or learned, and nothing else differs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cotide_lab.commands.experiment_command import command
from cotide_lab.experiments.backfilling.known_run_times import KNOWN, forecasts_knowing, run
from cotide_lab.trace_replay.metrics import bounded_slowdown
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs


def crashing_log(count: int = 400) -> BatchJobs:
    """Users with habits, a third of whose jobs crash after ten seconds, and a queue."""
    generator = np.random.default_rng(5)
    user = generator.integers(0, 8, count)
    whole = np.maximum(1, (400.0 * (1 + user) * np.exp(generator.normal(0, 0.2, count))).astype(np.int64))
    return BatchJobs(
        name="/somewhere/crashing.swf",
        processors=16,
        numbers=np.arange(count),
        submit=np.cumsum(generator.integers(0, 600, count)),
        run=np.where(generator.random(count) < 1 / 3, 10, whole),
        demand=generator.integers(1, 9, count),
        request=whole * 3,
        user=user,
    )


def test_the_first_row_is_the_platform_as_it_is_and_the_last_knows_all():
    log = crashing_log()
    (found,) = run([log])
    assert [row.known for row in found.rows] == ["hybrid", *KNOWN]
    for row, runtime in ((found.rows[0], "learned"), (found.rows[-1], "clairvoyant")):
        start = run_policy(log, POLICIES["hybrid"], runtime).start
        assert row.wait_seconds == float((start - log.submit).mean())
        assert row.wait_longest == int((start - log.submit).max())
        assert row.bounded_slowdown == float(bounded_slowdown(log, start).mean())
    assert run([log, log], workers=2) == [found, found]


def test_the_gap_is_that_between_easy_and_the_better_plan_that_knows_all():
    log = crashing_log()
    (found,) = run([log])
    slowdowns = [
        bounded_slowdown(log, run_policy(log, POLICIES[name], "clairvoyant").start).mean() for name in ("sjf", "svf")
    ]
    assert found.plan_slowdown == float(min(slowdowns))
    assert found.easy_slowdown == float(bounded_slowdown(log, run_policy(log, POLICIES["easy"]).start).mean())
    gap = found.easy_slowdown - found.plan_slowdown
    for row in found.rows:
        assert row.gap_closed == pytest.approx((found.easy_slowdown - row.bounded_slowdown) / gap)


def test_what_is_known_is_the_run_time_and_the_rest_is_left_as_it_was_learned():
    log = crashing_log(20)
    point, upper = log.request // 2, log.request
    points = {known: forecasts_knowing(known, log, point, upper).point for known in KNOWN}
    uppers = {known: forecasts_knowing(known, log, point, upper).upper for known in KNOWN}
    assert all(points[known] is (log.run if known in ("order", "both") else point) for known in KNOWN)
    assert all(uppers[known] is (log.run if known in ("lengths", "both") else upper) for known in KNOWN)
    assert all(forecasts_knowing(known, log, point, upper).predictable.all() for known in KNOWN)


def test_a_schedule_has_upper_forecasts_where_they_are_learned_and_only_there():
    log = crashing_log()
    learned = run_policy(log, POLICIES["hybrid"])
    assert learned.upper is not None
    assert (learned.upper >= learned.forecast).all()
    assert (learned.upper <= log.request).all()
    assert run_policy(log, POLICIES["easy"]).upper is None


def test_the_command_shows_a_row_for_each(tmp_path: Path):
    rows = [f"{n} {60 * n} 0 {10 + 90 * (n % 4)} 4 -1 -1 4 600 -1 1 {n % 3} 1 -1 1 -1 -1 -1" for n in range(1, 60)]
    path = tmp_path / "small.swf"
    path.write_text("; MaxProcs: 8\n" + "\n".join(rows) + "\n")
    result = CliRunner().invoke(command, ["known-run-times", str(path), "-o", "json"], catch_exceptions=False)
    (document,) = json.loads(result.stdout)
    assert [row["known"] for row in document["rows"]] == ["hybrid", *KNOWN]
    shown = CliRunner().invoke(command, ["known-run-times", str(path)], catch_exceptions=False).stdout
    assert "gap closed" in shown
    assert "the gap is from easy's" in shown

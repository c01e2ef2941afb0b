"""With which share the hybrid platform begins: every share is replayed, and a share is read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from cotide_core.kernels.machine_platform import FIRST_SHARE
from cotide_lab.commands.experiment_command import command
from cotide_lab.experiments.backfilling.first_share import SHARES, ShareResult, run
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs


def steady_log(count: int = 400) -> BatchJobs:
    """Users with habits, and a queue from the first jobs on, in which the first share still counts."""
    generator = np.random.default_rng(3)
    user = generator.integers(0, 8, count)
    run_seconds = np.maximum(1, (200.0 * (1 + user) * np.exp(generator.normal(0, 0.1, count))).astype(np.int64))
    return BatchJobs(
        name="/somewhere/steady.swf",
        processors=16,
        numbers=np.arange(count),
        submit=np.cumsum(generator.integers(0, 180, count)),
        run=run_seconds,
        demand=generator.integers(1, 8, count),
        request=run_seconds * 3,
        user=user,
    )


def test_the_usual_first_share_is_the_platform_as_it_is_and_another_is_another_schedule() -> None:
    log = steady_log()
    (found,) = run([log], shares=(0.05, FIRST_SHARE))
    start = run_policy(log, POLICIES["hybrid"]).start
    assert found.wait_seconds[FIRST_SHARE] == float((start - log.submit).mean())
    assert found.wait_seconds[0.05] != found.wait_seconds[FIRST_SHARE]
    assert run([log], shares=(0.05, FIRST_SHARE), workers=2) == [found]


def test_the_best_share_waits_least_and_the_spread_is_of_the_waits() -> None:
    found = ShareResult("a", 1, {0.1: 120.0, 0.6: 100.0, 1.0: 100.0}, {0.1: 2.0, 0.6: 2.0, 1.0: 2.0})
    assert found.best == 0.6
    assert abs(found.spread - 0.2) < 1e-12


def test_the_command_replays_every_share(tmp_path: Path) -> None:
    rows = [f"{n} {60 * n} 0 300 4 -1 -1 4 600 -1 1 {n % 3} 1 -1 1 -1 -1 -1" for n in range(1, 60)]
    path = tmp_path / "small.swf"
    path.write_text("; MaxProcs: 16\n" + "\n".join(rows) + "\n")
    result = CliRunner().invoke(command, ["first-share", str(path), "-o", "json"], catch_exceptions=False)
    (document,) = json.loads(result.stdout)
    assert list(document["wait_seconds"]) == [f"{share:g}" if share != 1.0 else "1.0" for share in SHARES]
    shown = CliRunner().invoke(command, ["first-share", str(path)], catch_exceptions=False)
    assert "longest over least" in shown.stdout

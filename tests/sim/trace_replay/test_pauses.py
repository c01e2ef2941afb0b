"""A replay that pauses goes on as if it had not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_reference import columns, logs

from cotide_predictors.run_time.kernels.run_forecasts import LEARNED, past_of
from cotide_sim.trace_replay.kernels.conservative import replay_conservative
from cotide_sim.trace_replay.kernels.easy import replay_queue
from cotide_sim.trace_replay.kernels.kept import ARRIVED, NEVER, RUNNING, WAITING, kept_of
from cotide_sim.trace_replay.kernels.plan import replay_plan
from cotide_sim.trace_replay.kernels.platform import replay_platform
from cotide_sim.trace_replay.kernels.slack import replay_slack

KERNELS = {
    "easy": (replay_queue, lambda mode, _: (0, 0, mode, 0), 2),
    "easy-sjbf": (replay_queue, lambda mode, _: (0, 1, mode, 0), 2),
    "conservative": (replay_conservative, lambda mode, _: (mode,), 2),
    "slack": (replay_slack, lambda mode, n: (np.full(n, 50), mode), 2),
    "plan": (replay_plan, lambda mode, _: (2, mode), 1),
    "platform": (replay_platform, lambda mode, _: (mode,), 3),
}


def in_pieces(name, jobs, capacity, mode, pauses):
    """Replay with a pause at each of the times; return all that comes out, as bytes."""
    kernel, codes, extra = KERNELS[name]
    log = columns(jobs)
    past = past_of(LEARNED, 2, log["user"], log["demand"], log["request"])
    outs = [log["forecast"], *np.full((extra, len(jobs)), 0, dtype=np.int64)]
    kept, progress = kept_of(len(jobs)), np.zeros(2, dtype=np.int64)
    rounds = 0
    for pause in [*pauses, NEVER]:
        kept.until[0] = pause
        arrays = (log["submit"], log["run"], log["demand"], log["request"], log["user"], past, capacity)
        rounds = kernel(*arrays, *codes(mode, len(jobs)), *outs, progress, kept)
    assert (kept.counts[ARRIVED], kept.counts[RUNNING], kept.counts[WAITING]) == (len(jobs), 0, 0)
    return rounds, *(array.tobytes() for array in outs)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=60, deadline=None)
@given(log=logs(), pauses=st.lists(st.integers(0, 60), max_size=6).map(sorted))
def test_a_replay_in_pieces_equals_one_in_a_single_piece(name, log, pauses):
    jobs, capacity, mode = log
    assert in_pieces(name, jobs, capacity, mode, pauses) == in_pieces(name, jobs, capacity, mode, [])

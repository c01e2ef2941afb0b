"""A replay that pauses goes on as if it had not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_reference import columns_of, logs

from cotide_lab.predictors.run_time.kernels.run_forecasts import LEARNED, past_of
from cotide_lab.trace_replay.kernels.conservative import ConservativeRule, replay_conservative
from cotide_lab.trace_replay.kernels.easy import QueueRule, replay_queue
from cotide_lab.trace_replay.kernels.plan import PlanRule, replay_plan
from cotide_lab.trace_replay.kernels.platform import platform_rule, replay_platform
from cotide_lab.trace_replay.kernels.replay_state import ARRIVED, NEVER, RUNNING, WAITING, new_replay_state
from cotide_lab.trace_replay.kernels.slack import replay_slack, slack_rule

KERNELS = {
    "easy": (replay_queue, lambda capacity, *_: QueueRule(capacity, 0, 0)),
    "easy-sjbf": (replay_queue, lambda capacity, *_: QueueRule(capacity, 0, 1)),
    "conservative": (replay_conservative, lambda capacity, *_: ConservativeRule(capacity)),
    "slack": (replay_slack, lambda capacity, mode, past, n: slack_rule(capacity, np.full(n, 50))),
    "plan": (replay_plan, lambda capacity, *_: PlanRule(capacity, 2)),
    "platform": (
        replay_platform,
        lambda capacity, mode, past, n: platform_rule(capacity, mode, past, *np.zeros((2, n), dtype=np.int64)),
    ),
}


def in_pieces(name, jobs, capacity, mode, pauses):
    """Replay with a pause at each of the times; return all that comes out, as bytes."""
    kernel, rule_of = KERNELS[name]
    log = columns_of(jobs)
    past = past_of(LEARNED, 2, log.user, log.demand, log.request)
    state, progress = new_replay_state(len(jobs)), np.zeros(2, dtype=np.int64)
    rule = rule_of(capacity, mode, past, len(jobs))
    rounds = 0
    for pause in [*pauses, NEVER]:
        state.until[0] = pause
        rounds = kernel(log, past, mode, 0, progress, state, rule)
    assert (state.counts[ARRIVED], state.counts[RUNNING], state.counts[WAITING]) == (len(jobs), 0, 0)
    outs = (log.forecast, log.start, log.promise)
    found = (rule.upper, rule.predictable) if name == "platform" else ()
    return rounds, *(array.tobytes() for array in (*outs, *found))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=60, deadline=None)
@given(log=logs(), pauses=st.lists(st.integers(0, 60), max_size=6).map(sorted))
def test_a_replay_in_pieces_equals_one_in_a_single_piece(name, log, pauses):
    jobs, capacity, mode = log
    assert in_pieces(name, jobs, capacity, mode, pauses) == in_pieces(name, jobs, capacity, mode, [])

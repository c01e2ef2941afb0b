"""Slack-based backfilling live: the replay's starts on one machine, promises on many, and what pods are told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_cluster import Cluster, bound, clusters, engine, jobs_of, live_starts, node, pod, running
from replay_reference import replay

from cotide_core.events import PodPhase, PodUpserted
from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN
from cotide_lab.trace_replay.kernels.slack import replay_slack, slack_rule


@settings(max_examples=80, deadline=None)
@given(log=jobs_of(outlive=False), priority=st.sampled_from([0, 25, 50, 100]))
def test_on_one_machine_pods_start_when_the_replay_does_while_none_outlives_its_forecast(log, priority):
    """A Job's priority is twice the replay's: its default of 100 has the mean wait as slack, as 50 has there."""
    jobs, capacity = log
    found = replay(replay_slack, jobs, slack_rule(capacity, np.full(len(jobs), priority, np.int64)), GIVEN)[0]
    assert live_starts("slack", jobs, capacity, job_priority=2 * priority) == found


@pytest.mark.parametrize("policy", ["slack", "slack-guarded"])
@settings(max_examples=50, deadline=None)
@given(world=clusters(), priority=st.sampled_from([0, 100, 200, 1000]))
def test_while_no_pod_outlives_its_forecast_each_starts_by_the_latest_moment_it_was_ever_told(policy, world, priority):
    nodes, pods = world
    cluster = Cluster(policy, nodes)
    for number, (at, run, estimate, cpu, memory) in enumerate(pods):
        cluster.submit(f"{number:02}", at, run, estimate, cpu, memory, job_priority=priority)
    promised: dict[str, float] = {}
    take = cluster.take

    def listen(out, now):
        take(out, now)
        for key, one in cluster.scheduler.planned().items():
            assert one.reserved
            assert one.latest_seconds is not None
            assert one.start_seconds <= one.latest_seconds
            promised[key] = min(promised.get(key, one.latest_seconds), one.latest_seconds)

    cluster.take = listen  # type: ignore[method-assign]  # so that each cycle's plan is seen
    starts = cluster.play()
    assert len(starts) == len(pods)
    assert all(starts[key] <= latest for key, latest in promised.items())
    if priority >= 200:
        first: dict[str, float] = {}
        for _, planned in cluster.planned:
            for key, (start, _, _) in planned.items():
                assert first.setdefault(key, start) >= starts[key], "without slack it is conservative: nothing slips"


@pytest.mark.parametrize("others", [(), (node("0", 3000), running("busy", 3000, 100.0, "0"))], ids=["one", "two nodes"])
def test_a_pod_with_slack_lets_a_short_one_pass_and_one_without_does_not(others):
    """Three cores. The first two pods wait 0 and 8 s, so the mean wait is 4 s, and the slack of priority 0 is 8 s.

    second holds two cores from 8 to 10. At 9 come wide, all three for 4 s, reserved 10, and short, one for 3 s. short
    fits beside second; then wide starts at 12, 2 s later, and short 5 s earlier than the 14 behind it.
    """
    for priority, expected in ((200, (10.0, 14.0, 10.0)), (0, (12.0, 9.0, 18.0))):
        scheduler, _ = engine("slack", *others, node(cpu=3000), pod("first", 3000, 8.0), pod("second", 2000, 2.0))
        ended = scheduler.state.pod("d/first")
        assert ended is not None
        done = PodUpserted(ended._replace(phase=PodPhase.SUCCEEDED))
        assert bound(scheduler.handle([done], 8.0)) == {"second": "a"}
        arrivals = (pod("wide", 3000, 4.0, 9.0, job_priority=priority), pod("short", 1000, 3.0, 9.0))
        out = scheduler.handle(arrivals, 9.0)
        planned = scheduler.planned()
        assert bound(out) == ({"short": "a"} if expected[1] == 9.0 else {})
        assert planned["d/wide"].start_seconds == expected[0]
        assert planned["d/wide"].latest_seconds == expected[2]
        if expected[1] > 9.0:
            assert planned["d/short"].start_seconds == expected[1]

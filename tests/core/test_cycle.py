"""The engine's life of a pod: assumed, confirmed, refused, forgotten, woken, and always explained."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_objects import node_upserted, pod_upserted

from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.errors import InputError, ModelError
from cotide_core.events import (
    BindRefused,
    Event,
    ModelsChanged,
    MoreToCome,
    NodeDeleted,
    PodDeleted,
    PodPhase,
    Taint,
    Tick,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue, HeuristicCompletion, HeuristicQos
from cotide_core.forecasts import CompletionForecaster, QosForecaster
from cotide_core.instructions import Bind, Instruction, Wait, WaitReason
from cotide_core.queueing.stepwise import finished


def engine(*events: Event, **knobs: object) -> Scheduler:
    config = replace(SchedulerConfig(policy="fifo", assume_timeout_seconds=30), **knobs)  # type: ignore[arg-type]  # as named
    scheduler = Scheduler(config, HeuristicCatalogue())
    scheduler.handle(events, 0.0)
    return scheduler


def refused(name: str = "p", *, retry: bool, at: str = "a") -> BindRefused:
    return BindRefused(f"d/{name}", f"u-{name}", at, 500, "boom", retry)


def test_a_pod_is_bound_once_and_assumed_at_once() -> None:
    scheduler = engine(node_upserted())
    (bind,) = scheduler.handle([pod_upserted(created_seconds=1.0)], 4.0)
    assert isinstance(bind, Bind)
    assert (bind.key, bind.uid, bind.node, bind.attempts, bind.queued_seconds) == ("d/p", "u-p", "a", 1, 3.0)
    assert scheduler.handle([pod_upserted(created_seconds=1.0), Tick()], 5.0) == []
    assert scheduler.pending() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}


def test_a_bind_carries_the_predicted_completion_with_the_slowdown_on_its_node() -> None:
    scheduler = engine(node_upserted())
    (bind,) = scheduler.handle([pod_upserted(cpu=500, requested_seconds=60.0)], 0.0)
    # Pressure 500/1000 and no rate: a slowdown of 1; the heuristic's p90 is twice its p50.
    assert isinstance(bind, Bind)
    assert (bind.forecast.seconds_p50, bind.forecast.seconds_p90) == (60.0, 120.0)
    assert bind.forecast.completion_model == "heuristic"


def test_pods_that_are_not_ours_or_not_waiting_are_left_alone() -> None:
    scheduler = engine(node_upserted())
    events = [
        pod_upserted("foreign", ours=False),
        pod_upserted("ended", phase=PodPhase.FAILED),
        pod_upserted("leaving", terminating=True),
        pod_upserted("bound", cpu=1, node="a"),
    ]
    assert scheduler.handle(events, 0.0) == []


def test_a_pod_whose_claim_went_while_it_was_being_bound_is_not_tried_before_the_claim_is_back() -> None:
    scheduler = engine(node_upserted(), pod_upserted())
    scheduler.handle([pod_upserted(blocked="claim c is gone")], 1.0)
    (wait,) = scheduler.handle([refused(retry=True)], 2.0)
    assert isinstance(wait, Wait)
    assert wait.message == "claim c is gone"
    assert scheduler.next_wakeup(2.0) is None
    assert scheduler.handle([], 60.0) == []
    (bind,) = scheduler.handle([pod_upserted()], 61.0)
    assert isinstance(bind, Bind)


def test_a_refused_bind_frees_the_node_and_is_tried_again_after_its_backoff() -> None:
    scheduler = engine(node_upserted(), pod_upserted())
    (wait,) = scheduler.handle([refused(retry=True)], 1.0)
    assert isinstance(wait, Wait)
    assert wait.reason is WaitReason.WAITING_FOR_TURN
    assert (wait.message, wait.retry_at_seconds) == ("the binding to a was refused (500): boom", 2.0)
    assert scheduler.pending()["backoff"] == 1
    assert scheduler.next_wakeup(1.0) == 2.0
    (bind,) = scheduler.handle([], 2.0)
    assert isinstance(bind, Bind)
    assert bind.attempts == 2


def test_a_bind_refused_for_good_is_forgotten_and_the_pod_let_go() -> None:
    scheduler = engine(node_upserted(), pod_upserted())
    assert scheduler.handle([refused(retry=False)], 1.0) == []
    assert sum(scheduler.pending().values()) == 0
    (bind,) = scheduler.handle([pod_upserted("next")], 2.0)
    assert isinstance(bind, Bind)


def test_a_refusal_after_the_confirmation_changes_nothing() -> None:
    scheduler = engine(node_upserted(), pod_upserted())
    scheduler.handle([pod_upserted(node="a"), refused(retry=True)], 1.0)
    assert sum(scheduler.pending().values()) == 0
    (wait,) = scheduler.handle([pod_upserted("next")], 2.0)
    assert isinstance(wait, Wait), "the node is still taken"


def test_an_assumption_expires_only_when_nobody_answered() -> None:
    scheduler = engine(node_upserted(cpu=2000), pod_upserted("silent"), pod_upserted("told"))
    scheduler.handle([pod_upserted("told", node="a")], 1.0)
    assert scheduler.next_wakeup(1.0) == 30.0
    assert scheduler.handle([], 29.0) == []
    (wait,) = scheduler.handle([], 30.0)
    assert isinstance(wait, Wait)
    assert wait.key == "d/silent"
    (bind,) = scheduler.handle([], 31.0)
    assert isinstance(bind, Bind)
    assert bind.key == "d/silent"


def test_following_the_wakeups_never_stands_still() -> None:
    # 0.4 + 25 - 25 is less than 0.4 in floating point: a wake-up that comes too early would come again for ever.
    scheduler = engine(node_upserted(), assume_timeout_seconds=25)
    scheduler.handle([pod_upserted()], 0.4)
    wakeup = scheduler.next_wakeup(0.4)
    assert wakeup == 0.4 + 25
    assert len(scheduler.handle([], wakeup)) == 1
    assert scheduler.next_wakeup(wakeup) == wakeup + 1.0, "its back-off"


def test_a_pod_deleted_while_it_waits_or_is_assumed_is_gone() -> None:
    scheduler = engine(node_upserted(), pod_upserted("assumed"), pod_upserted("waiting", created_seconds=1.0))
    scheduler.handle([PodDeleted("d/waiting", "u-waiting"), PodDeleted("d/assumed", "u-assumed")], 1.0)
    assert sum(scheduler.pending().values()) == 0
    (bind,) = scheduler.handle([pod_upserted("next")], 2.0)
    assert isinstance(bind, Bind)


def test_a_node_deleted_mid_decision_gives_its_pod_back_once_the_refusal_comes() -> None:
    scheduler = engine(node_upserted(), pod_upserted())
    scheduler.handle([NodeDeleted("a"), refused(retry=True)], 1.0)
    (wait,) = scheduler.handle([], 2.0)
    assert isinstance(wait, Wait)
    assert wait.message == "0/0 nodes are available: no node is registered"
    (bind,) = scheduler.handle([node_upserted("b")], 3.0)
    assert isinstance(bind, Bind)
    assert bind.node == "b"


def test_a_pod_made_anew_under_the_same_name_is_placed_for_itself() -> None:
    scheduler = engine(node_upserted(cpu=500), pod_upserted())
    (wait,) = scheduler.handle([pod_upserted(cpu=500, uid="new")], 1.0) or [None]
    assert isinstance(wait, Bind)
    assert wait.uid == "new"


def test_the_words_are_kube_schedulers_and_every_node_is_counted_once() -> None:
    tainted = node_upserted("c", taints=(Taint("gpu", "yes", "NoSchedule"),))
    scheduler = engine(node_upserted("a", 10), node_upserted("b", 10), tainted, node_upserted("d", unschedulable=True))
    (wait,) = scheduler.handle([pod_upserted()], 0.0)
    assert isinstance(wait, Wait)
    assert wait.message == (
        "0/4 nodes are available: 2 Insufficient cpu, 1 node(s) had untolerated taint {gpu: yes}, "
        "1 node(s) were unschedulable"
    )
    assert wait.reason is WaitReason.INSUFFICIENT_SLACK
    assert [verdict.example for verdict in wait.refused] == ["a", "c", "d"]
    (bind,) = scheduler.handle([pod_upserted("tiny", 10)], 1.0)
    assert isinstance(bind, Bind)
    assert [(verdict.nodes, verdict.example) for verdict in bind.refused] == [(1, "c"), (1, "d")]


def test_a_waiting_pod_is_woken_by_what_could_help_and_by_nothing_else() -> None:
    scheduler = engine(node_upserted(), pod_upserted("first"), pod_upserted("second", created_seconds=1.0))
    scheduler.handle([pod_upserted("first", node="a")], 1.0)
    assert scheduler.handle([Tick(), node_upserted("small", 10)], 2.0) == [], "a node that is too small is no help"
    assert scheduler.next_wakeup(2.0) == 60.0, "the flush"
    (bind,) = scheduler.handle([pod_upserted("first", node="a", phase=PodPhase.SUCCEEDED)], 3.0)
    assert isinstance(bind, Bind)
    assert (bind.key, bind.attempts) == ("d/second", 2)


def test_the_same_refusal_is_told_once() -> None:
    scheduler = engine(node_upserted(cpu=10))
    assert len(scheduler.handle([pod_upserted()], 0.0)) == 1
    assert scheduler.handle([], 60.0) == [], "flushed, failed again, nothing new to say"
    (wait,) = scheduler.handle([node_upserted("b", 20)], 130.0)
    assert isinstance(wait, Wait)
    assert wait.message.startswith("0/2 nodes")


def test_a_gated_pod_waits_for_its_gates_and_an_unsupported_field_is_named() -> None:
    scheduler = engine(node_upserted(cpu=2000))
    field = "spec.topologySpreadConstraints"
    (wait,) = scheduler.handle([pod_upserted("gated", gates=("x",)), pod_upserted("odd", unsupported=(field,))], 0.0)
    assert isinstance(wait, Wait)
    assert wait.reason is WaitReason.MISCONFIGURED
    assert field in wait.message
    assert scheduler.pending() == {"active": 0, "backoff": 0, "unschedulable": 1, "gated": 1}
    out = scheduler.handle([pod_upserted("gated"), pod_upserted("odd")], 1.0)
    assert sorted(one.key for one in out) == ["d/gated", "d/odd"]


def test_a_full_queue_says_so_and_loses_nobody() -> None:
    scheduler = engine(max_queue=1)
    out = scheduler.handle([pod_upserted("one"), pod_upserted("two", created_seconds=1.0)], 2.0)
    waits = {one.key: one for one in out if isinstance(one, Wait)}
    assert waits["d/two"].message == "the queue is full (1 pod); it is kept and admitted in turn"
    out = scheduler.handle([node_upserted(cpu=2000)], 3.0)
    assert scheduler.next_wakeup(3.0) == 3.0, "a place became free"
    out = out + scheduler.handle([], 3.0)
    assert [one.key for one in out if isinstance(one, Bind)] == ["d/one", "d/two"]


def test_a_smaller_pod_passes_one_that_does_not_fit() -> None:
    scheduler = engine(node_upserted(cpu=500))
    out = scheduler.handle([pod_upserted("big", 1000), pod_upserted("small", 500, created_seconds=1.0)], 1.0)
    assert [type(one) for one in out] == [Wait, Bind]


def test_jobs_that_only_a_forecast_could_tell_apart_scout_for_each_other() -> None:
    """fifo looks at requests: where one job of a size found no room, an equal one of another type is not tried."""
    attempts = {}
    for policy in ("fifo", "fifo-guarded"):
        running = pod_upserted("running", node="a", phase=PodPhase.RUNNING)
        scheduler = engine(node_upserted("a"), running, policy=policy)
        waiting = [pod_upserted(name, type=name, created_seconds=float(at)) for at, name in enumerate(("x", "y", "z"))]
        assert all(isinstance(one, Wait) for one in scheduler.handle(waiting, 5.0))
        freed = [PodDeleted("d/running", "u-running")], [node_upserted("b")], [node_upserted("c")]
        out = [one for at, events in enumerate(freed) for one in scheduler.handle(events, 6.0 + at)]
        attempts[policy] = [(one.key, one.attempts) for one in out if isinstance(one, Bind)]
    # On arrival each is tried. Then x finds room, and y is tried behind it; then y does, and z is; then z does.
    assert attempts["fifo"] == [("d/x", 2), ("d/y", 3), ("d/z", 3)]
    assert attempts["fifo-guarded"] == [("d/x", 2), ("d/y", 3), ("d/z", 4)], "each type scouts for itself"


def test_queue_positions_follow_the_policys_order() -> None:
    scheduler = engine()
    scheduler.handle([pod_upserted("late", created_seconds=2.0), pod_upserted("early", created_seconds=1.0)], 3.0)
    assert scheduler.queue_positions() == {"d/early": 1, "d/late": 2}


def test_predicted_starts_follow_the_running_jobs_finishes() -> None:
    running = [
        pod_upserted("r1", requested_seconds=50.0),
        pod_upserted("r2", created_seconds=0.1, requested_seconds=80.0),
    ]
    scheduler = engine(node_upserted("a"), node_upserted("b"), *running)
    waiting = [pod_upserted(f"w{n}", created_seconds=1.0 + n, requested_seconds=100.0) for n in range(3)]
    scheduler.handle(waiting, 10.0)
    # Both nodes are full: r1 gives back 1000 m at 50, r2 at 80; w0 takes the first until 150, when w2 may start.
    assert scheduler.predicted_starts(10.0) == {"d/w0": 50.0, "d/w1": 80.0, "d/w2": 150.0}


def test_positions_and_starts_come_in_steps_and_none_where_nobody_waits() -> None:
    scheduler = engine(node_upserted("a"), pod_upserted("r", requested_seconds=50.0))
    assert finished(scheduler.outlook_steps(1.0)) == ({}, {})
    scheduler.handle([pod_upserted("late", created_seconds=2.0), pod_upserted("early", created_seconds=1.0)], 3.0)
    steps = scheduler.outlook_steps(3.0)
    positions, starts = finished(steps)
    assert positions == scheduler.queue_positions() == {"d/early": 1, "d/late": 2}
    assert starts["d/early"] == 50.0


def test_asking_for_predicted_starts_changes_no_decision() -> None:
    """Else a ledger, which records no such questions, could not be reproduced."""
    asked: list[int] = []

    class Counting(HeuristicCompletion):
        def isolated_seconds(self, types, input_bytes, requested_seconds):  # type: ignore[no-untyped-def]  # as inherited
            asked.append(len(types))
            return super().isolated_seconds(types, input_bytes, requested_seconds)

    class Only(HeuristicCatalogue):
        def completion(self, model_id: str) -> CompletionForecaster:
            return Counting()

    scheduler = Scheduler(SchedulerConfig(), Only())
    running = pod_upserted("running", node="a", phase=PodPhase.RUNNING, ours=False)
    scheduler.handle([node_upserted(), running, pod_upserted("huge", 5000, requested_seconds=7.0)], 0.0)
    asked.clear()
    scheduler.predicted_starts(0.0)
    assert asked == [1], "of what runs, as something waits for its room"
    scheduler.handle([pod_upserted("same")], 1.0)
    assert asked == [1, 1], "the arrival is asked about anew, as it would be in a replay"


def test_nothing_is_predicted_for_a_pod_larger_than_all_that_comes_back() -> None:
    scheduler = engine(node_upserted())
    scheduler.handle([pod_upserted("huge", 5000)], 1.0)
    assert scheduler.predicted_starts(1.0) == {}


class TwoModels:
    """Knows the model ids ``old`` and ``new``; the new one thinks that job names are run times."""

    class ByType(HeuristicCompletion):
        def isolated_seconds(self, types, input_bytes, requested_seconds):  # type: ignore[no-untyped-def]  # as inherited
            import numpy as np

            from cotide_core.forecasts import CompletionForecast

            p50 = np.array([float(name) for name in types])
            return CompletionForecast(p50, p50)

    def qos(self, model_id: str) -> QosForecaster:
        return HeuristicQos()

    def completion(self, model_id: str) -> CompletionForecaster:
        if model_id not in ("", "new"):
            raise ModelError(f"no model {model_id}")
        return self.ByType() if model_id == "new" else HeuristicCompletion()


def test_new_models_reorder_the_queue() -> None:
    scheduler = Scheduler(SchedulerConfig(policy="qpsm"), TwoModels())
    jobs = [pod_upserted("a", type="90", input_bytes=1), pod_upserted("b", type="5", input_bytes=10**12)]
    scheduler.handle(jobs, 0.0)
    assert scheduler.queue_positions() == {"d/a": 1, "d/b": 2}
    scheduler.handle([ModelsChanged(completion="new")], 1.0)
    assert scheduler.queue_positions() == {"d/b": 1, "d/a": 2}


def test_a_model_that_is_missing_is_an_error_for_the_driver() -> None:
    with pytest.raises(ModelError, match="no model lost"):
        Scheduler(SchedulerConfig(), TwoModels()).handle([ModelsChanged(completion="lost")], 0.0)


def test_attempts_and_demotions_survive_a_restart() -> None:
    scheduler = engine(node_upserted(cpu=10), policy="qpsm")
    (wait,) = scheduler.handle([pod_upserted(attempts=3, demotions=1)], 0.0)
    assert isinstance(wait, Wait)
    assert (wait.attempts, wait.demotions) == (4, 1)


def test_our_own_status_coming_back_is_no_reason_to_try_again() -> None:
    scheduler = engine(node_upserted(cpu=10))
    scheduler.handle([pod_upserted()], 0.0)
    scheduler.handle([pod_upserted(attempts=1, demotions=1)], 1.0)
    assert scheduler.pending()["unschedulable"] == 1


@pytest.mark.parametrize(
    ("knobs", "field"),
    [
        ({"qos_risk_threshold": 1.5}, "qosRiskThreshold"),
        ({"max_queue": 0}, "maxQueue"),
        ({"age_back_seconds": -1}, "age"),
    ],
)
def test_a_senseless_knob_is_refused_by_name(knobs: dict[str, float], field: str) -> None:
    with pytest.raises(InputError, match=field):
        SchedulerConfig(**knobs)  # type: ignore[arg-type]  # that is the point


def test_every_instruction_names_its_pod_once_per_cycle() -> None:
    scheduler = engine(*(node_upserted(f"n{number}") for number in range(3)))
    out: list[Instruction] = scheduler.handle([pod_upserted(f"p{number}") for number in range(9)], 0.0)
    assert len(out) == len({one.key for one in out}) == 9


def test_nothing_is_decided_while_more_is_to_come_and_then_the_same_as_at_once() -> None:
    listed = [node_upserted(cpu=100), *(pod_upserted(f"p{number}", cpu=60) for number in range(3))]
    runs = pod_upserted("runs", cpu=60, node="a", phase=PodPhase.RUNNING)
    parts = engine()
    assert [parts.handle([event, MoreToCome()], 1.0) for event in listed] == [[]] * 4
    at_once = engine().handle([*listed, runs], 1.0)
    assert parts.handle([runs], 1.0) == at_once
    assert {type(one) for one in at_once} == {Wait}


def test_of_pods_that_can_not_be_tried_it_is_told_while_more_is_to_come() -> None:
    (decided,) = engine().handle([pod_upserted(unsupported=("spec.x",)), MoreToCome()], 1.0)
    assert isinstance(decided, Wait)
    assert decided.reason is WaitReason.MISCONFIGURED

"""Evictions from decision to report: who is spared, who is asked, and what is written down before."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest
from eviction_bench import Bench, evict

from cotide_core.errors import ClusterError
from cotide_core.instructions import Evict, EvictCause
from cotide_kube.answers import Answer, ApiError
from cotide_kube.objects import PodDisruptionBudgetObject
from cotide_kube.timestamps import format_timestamp
from cotide_operator.cache.decision_store import Decision
from cotide_operator.scheduling import nominator


@pytest.fixture
def bench() -> Bench:
    return Bench()


def relief(name: str) -> Evict:
    return Evict(f"ns/{name}", f"u-{name}", "n", "why", EvictCause.OVERLOADED)


async def test_the_claim_is_written_once_and_before_anybody_is_asked_to_leave(bench: Bench) -> None:
    bench.pod("a"), bench.pod("b")
    assert await bench.carry_out(evict("a"), evict("b")) == {"a": (201, False), "b": (201, False)}
    assert bench.said[0] == "nominate x n"
    assert sorted(bench.said[1:]) == ["evict a", "evict b"]


async def test_a_claim_that_stands_is_not_written_again_and_another_node_is(bench: Bench) -> None:
    bench.pod("a"), bench.pod("b")
    bench.pod("x", {"cotide.dev/class": "batch"}, node="", nominated="n")
    await bench.carry_out(evict("a"))
    assert bench.said == ["evict a"]
    bench.pod("x", {"cotide.dev/class": "batch"}, node="", nominated="elsewhere")
    await bench.carry_out(evict("b"))
    assert bench.said == ["evict a", "nominate x n", "evict b"]


async def test_nobody_goes_for_a_pod_whose_claim_can_not_be_written(bench: Bench) -> None:
    bench.pod("a")
    bench.refuses_patches = ApiError(403, "Forbidden", "no right to pods/status")
    assert await bench.carry_out(evict("a")) == {"a": (403, False)}
    bench.refuses_patches = ApiError(409, "Conflict", "another uid")
    assert await bench.carry_out(evict("a")) == {"a": (409, True)}, "not the victim's fault"
    bench.pod("x", node="m")
    assert await bench.carry_out(evict("a")) == {"a": (409, True)}, "x has a node by now"
    assert bench.said == []


async def test_an_online_pod_is_refused_loudly_whatever_was_decided(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.pod("web", {"cotide.dev/class": "online"})
    bench.pod("a")
    assert await bench.carry_out(evict("web"), evict("a")) == {"web": (403, False), "a": (424, True)}
    assert await bench.carry_out(relief("web")) == {"web": (403, False)}
    assert bench.said == []
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "the eviction of ns/web from n was decided (why), but it is online: refused" in caplog.messages[0]


async def test_a_pod_that_became_online_while_it_waited_for_its_turn_is_refused_too(bench: Bench) -> None:
    bench.pod("a")
    bench.gate = asyncio.Event()
    task = asyncio.create_task(bench.binder.run())
    bench.binder._concurrency = 1
    bench.binder.carry_out([evict("a")], {})
    bench.pod("b")
    bench.binder.carry_out([evict("b")], {})
    bench.pod("b", {"cotide.dev/class": "online"})
    bench.gate.set()
    async with asyncio.timeout(5):
        await bench.binder._drained.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bench.reports["ns/b"].answer.reason == "Online"
    assert "evict b" not in bench.said


async def test_owners_who_say_never_after_the_decision_are_heard(bench: Bench) -> None:
    bench.pod("a", annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert await bench.carry_out(relief("a")) == {"a": (403, False)}
    assert bench.said == []


@pytest.mark.parametrize("text", ["24h", "yes"])
async def test_an_owners_time_and_an_unreadable_word_protect(bench: Bench, text: str) -> None:
    started = {"startTime": format_timestamp(time.time() - 3600.0)}
    bench.pod("a", annotations={"karpenter.sh/do-not-disrupt": text}, status=started)
    assert await bench.carry_out(relief("a")) == {"a": (403, False)}
    assert bench.said == []


async def test_a_pod_goes_once_the_time_that_its_owner_wrote_is_over(bench: Bench) -> None:
    started = {"startTime": format_timestamp(time.time() - 3601.0)}
    bench.pod("a", annotations={"karpenter.sh/do-not-disrupt": "1h"}, status=started)
    assert await bench.carry_out(relief("a")) == {"a": (201, False)}


async def test_a_static_pod_is_never_asked_to_go_whatever_its_label_says(bench: Bench) -> None:
    bench.pod("a", annotations={"kubernetes.io/config.mirror": "1f2e"})  # its label says gratis
    despite = Evict("ns/a", "u-a", "n", "why", EvictCause.OVERLOADED, override=True)
    assert await bench.carry_out(despite) == {"a": (403, False)}
    assert bench.said == []


async def test_who_is_gone_replaced_or_going_needs_no_eviction(bench: Bench) -> None:
    bench.pod("going", deletionTimestamp="2026-11-20T13:00:00Z")
    bench.pod("replaced", uid="another")
    bench.pod("a")
    found = await bench.carry_out(evict("gone"), evict("going"), evict("replaced"), evict("a"))
    assert found == {"gone": (404, False), "going": (404, False), "replaced": (404, False), "a": (201, False)}


async def test_a_budget_keeps_a_victim_and_spares_those_that_would_go_beside_it(bench: Bench) -> None:
    bench.pod("a"), bench.pod("b"), bench.pod("c")
    bench.budget("none", {"matchLabels": {"app": "b"}}, allowed=0)
    found = await bench.carry_out(evict("a"), evict("b"), evict("c", nominee="y"))
    assert found["b"] == (429, False)
    assert found["a"] == (424, True)
    assert "evict a" not in bench.said
    # c goes for another pod, which is not there: that is its own story.
    assert found["c"] == (409, True)


async def test_victims_of_one_budget_are_counted_together(bench: Bench) -> None:
    bench.pod("a"), bench.pod("b")
    bench.budget("one", {}, allowed=1)
    assert await bench.carry_out(evict("a"), evict("b")) == {"a": (424, True), "b": (429, False)}
    assert await bench.carry_out(evict("a")) == {"a": (201, False)}


async def test_budgets_of_other_namespaces_without_a_selector_or_over_other_pods_keep_nobody(bench: Bench) -> None:
    bench.pod("a")
    bench.budget("elsewhere", {}, allowed=0, namespace="other")
    bench.budget("others", {"matchLabels": {"app": "web"}}, allowed=0)
    body = {"metadata": {"name": "nobody", "namespace": "ns"}, "spec": {}}
    bench.cache.apply("poddisruptionbudgets", "ADDED", msgspec.convert(body, PodDisruptionBudgetObject))
    assert await bench.carry_out(evict("a")) == {"a": (201, False)}


NOT_READY: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "False"}]}


@pytest.mark.parametrize(
    ("pod", "policy", "healthy", "code"),
    [
        (NOT_READY, "AlwaysAllow", 0, 201),
        (NOT_READY, "IfHealthyBudget", 1, 429),
        (NOT_READY, "IfHealthyBudget", 2, 201),
        (NOT_READY, "", 1, 429),
        (NOT_READY, "", 2, 201),
        ({}, "AlwaysAllow", 2, 429),
        ({"phase": "Pending"}, "IfHealthyBudget", 0, 201),
    ],
)
async def test_a_budget_keeps_a_pod_that_is_not_ready_as_its_policy_states(
    bench: Bench, pod: dict[str, Any], policy: str, healthy: int, code: int
) -> None:
    """Two must be healthy, and the budget lets no pod go."""
    bench.pod("a", status=pod)
    bench.budget("two", {}, allowed=0, policy=policy, currentHealthy=healthy, desiredHealthy=2)
    assert (await bench.carry_out(evict("a")))["a"][0] == code


async def test_a_budget_whose_status_is_behind_its_spec_lets_no_pod_go(bench: Bench) -> None:
    bench.pod("a")
    bench.budget("late", {}, allowed=3, observedGeneration=0)
    assert await bench.carry_out(evict("a")) == {"a": (429, False)}


async def test_two_budgets_over_one_pod_keep_it(bench: Bench) -> None:
    bench.pod("a")
    bench.budget("one", {}, allowed=1)
    bench.budget("two", {}, allowed=1)
    assert await bench.carry_out(evict("a")) == {"a": (429, False)}, "the API server would answer 500"


async def test_the_monitors_victims_are_not_tied_together(bench: Bench) -> None:
    bench.pod("a"), bench.pod("b")
    bench.answers["a"] = Answer(429, "TooManyRequests", "budget")
    assert await bench.carry_out(relief("a"), relief("b")) == {"a": (429, False), "b": (201, False)}


async def test_a_claim_that_came_to_nothing_is_taken_off_unless_there_is_a_new_one(bench: Bench) -> None:
    bench.pod("x", node="", nominated="n")
    bench.decisions.publish(Decision("ns/x", "u-x", 0.0, None, "InsufficientSlack", "waits", nominated_node="m"))
    bench.nominator.withdraw("ns/x")
    await bench.work.pop()()
    assert bench.said == [], "it has another claim by now"
    bench.decisions.publish(Decision("ns/x", "u-x", 0.0, None, "InsufficientSlack", "waits"))
    bench.nominator.withdraw("ns/x")
    await bench.work.pop()()
    assert bench.said == ["nominate x None"]
    bench.pod("a")
    await bench.carry_out(evict("a"))
    assert bench.said[1:] == ["nominate x n", "evict a"], "the old word in the cache is not taken for the new one"


async def test_a_claim_that_could_not_be_taken_off_is_taken_off_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nominator, "AGAIN_SECONDS", 0.0)
    bench.pod("x", node="", nominated="n")
    bench.decisions.publish(Decision("ns/x", "u-x", 0.0, None, "InsufficientSlack", "waits"))
    bench.refuses_patches = ApiError(500, "InternalError", "etcdserver: request timed out")
    bench.nominator.withdraw("ns/x")
    await bench.work.pop()()
    bench.refuses_patches = None
    for _ in range(3):
        await asyncio.sleep(0)
    await bench.work.pop()()
    assert bench.said == ["nominate x None"]


async def test_a_claim_that_got_no_answer_is_taken_off_although_nobody_has_seen_it(bench: Bench) -> None:
    bench.decisions.publish(Decision("ns/x", "u-x", 0.0, None, "InsufficientSlack", "waits"))
    bench.refuses_patches = ClusterError("no answer")
    await bench.nominator.write("ns/x", "u-x", "n")
    bench.refuses_patches = None
    bench.nominator.withdraw("ns/x")
    await bench.work.pop()()
    assert bench.said == ["nominate x None"]


def overriding(name: str) -> Evict:
    return Evict(f"ns/{name}", f"u-{name}", "n", "why", EvictCause.OVERLOADED, override=True)


async def test_an_administrators_override_takes_a_gratis_pod_that_its_owner_or_a_budget_would_keep(
    bench: Bench,
) -> None:
    bench.pod("kept", annotations={"karpenter.sh/do-not-disrupt": "true"})
    bench.pod("budget")
    bench.answers["budget"] = Answer(429, "TooManyRequests", "budget")
    done = await bench.carry_out(overriding("kept"), overriding("budget"))
    assert done == {"kept": (201, False), "budget": (200, False)}
    assert sorted(bench.said) == ["delete budget u-budget", "evict budget", "evict kept"]


async def test_no_override_takes_a_batch_pod_and_none_is_there_without_a_word(bench: Bench) -> None:
    bench.pod("batch", {"cotide.dev/class": "batch"})
    bench.pod("kept", {"cotide.dev/class": "batch"}, annotations={"karpenter.sh/do-not-disrupt": "true"})
    bench.pod("gratis")
    bench.answers = dict.fromkeys(("batch", "gratis"), Answer(429, "TooManyRequests", "budget"))
    done = await bench.carry_out(overriding("batch"), overriding("kept"), relief("gratis"))
    assert done == {"batch": (429, False), "kept": (403, False), "gratis": (429, False)}
    assert sorted(bench.said) == ["evict batch", "evict gratis"]


async def test_nothing_is_remembered_of_a_pod_that_is_gone_before_its_claim_is_written_or_withdrawn(
    bench: Bench,
) -> None:
    def goes() -> None:
        bench.cache.apply("pods", "DELETED", bench.cache.pods["ns/x"])
        bench.nominator.forget("ns/x")

    bench.gate = asyncio.Event()
    writing = asyncio.create_task(bench.nominator.write("ns/x", "u-x", "n"))
    await asyncio.sleep(0)
    goes()
    bench.gate.set()
    assert (await writing).ok  # the server was faster with it than with the deletion
    await bench.nominator.write("ns/x", "u-x", "n")
    bench.pod("x", node="", nominated="n")
    bench.nominator.withdraw("ns/x")
    goes()
    for work in bench.work:
        await work()
    kept = vars(bench.nominator)
    assert [kept[name] for name in ("_written", "_turns")] == [{}, {}]

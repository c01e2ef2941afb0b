"""Deletions of the embedded API server: finalizers, preconditions, namespaces, collections, evictions."""

from __future__ import annotations

from typing import Any

import pytest
from emulator_client import CRDS, GADGETS, MERGE, PODS, definition, pod, serving

from cotide_sim.apiserver.controllers.disruption import BudgetCounter
from cotide_sim.apiserver.storage.store import Entry


async def test_bound_pod_goes_when_its_kubelet_lets_go_and_unbound_at_once() -> None:
    async with serving() as (_, call):
        await call("POST", PODS, pod("waiting"))
        assert (await call("DELETE", f"{PODS}/waiting"))[0] == 200
        assert (await call("GET", f"{PODS}/waiting"))[0] == 404
        await call("POST", PODS, pod("bound"))
        await call("POST", f"{PODS}/bound/binding", {"target": {"name": "n"}})
        going = (await call("DELETE", f"{PODS}/bound"))[1]
        assert going["metadata"]["deletionGracePeriodSeconds"] == 30
        assert (await call("GET", f"{PODS}/bound"))[1]["metadata"]["deletionTimestamp"]
        assert (await call("DELETE", f"{PODS}/bound", {"gracePeriodSeconds": 0}))[0] == 200
        assert (await call("GET", f"{PODS}/bound"))[0] == 404


async def test_finalizer_holds_an_object_until_it_is_taken_off() -> None:
    async with serving() as (_, call):
        await call("POST", CRDS, definition())
        await call("POST", GADGETS, {"metadata": {"name": "a", "finalizers": ["example.dev/f"]}})
        assert (await call("DELETE", f"{GADGETS}/a"))[1]["metadata"]["deletionTimestamp"]
        more = {"metadata": {"finalizers": ["example.dev/f", "example.dev/g"]}}
        assert (await call("PATCH", f"{GADGETS}/a", more, MERGE))[0] == 422
        other = {"metadata": {"labels": {"x": "y"}}}
        assert (await call("PATCH", f"{GADGETS}/a", other, MERGE))[0] == 200
        assert (await call("GET", f"{GADGETS}/a"))[0] == 200
        assert (await call("PATCH", f"{GADGETS}/a", {"metadata": {"finalizers": None}}, MERGE))[0] == 200
        assert (await call("GET", f"{GADGETS}/a"))[0] == 404


async def test_a_watch_from_the_answer_that_took_the_last_finalizer_off_sees_the_object_go() -> None:
    async with serving() as (_, call):
        await call("POST", PODS, {**pod("a"), "metadata": {"name": "a", "finalizers": ["a/b"]}})
        await call("DELETE", f"{PODS}/a")
        last = (await call("PATCH", f"{PODS}/a", {"metadata": {"finalizers": None}}, MERGE))[1]["metadata"]
        async with call.watch(f"{PODS}?watch=1&resourceVersion={last['resourceVersion']}") as events:
            assert (await anext(events))[0] == "DELETED"


async def test_delete_preconditions_are_checked() -> None:
    async with serving() as (_, call):
        made = (await call("POST", PODS, pod()))[1]["metadata"]
        assert (await call("DELETE", f"{PODS}/web", {"preconditions": {"uid": "other"}}))[0] == 409
        assert (await call("DELETE", f"{PODS}/web", {"preconditions": {"resourceVersion": "1"}}))[0] == 409
        assert (await call("DELETE", f"{PODS}/web", {"preconditions": {"uid": made["uid"]}}))[0] == 200


async def test_collection_delete_takes_the_selected() -> None:
    async with serving() as (_, call):
        for name in ("a", "b", "c"):
            await call("POST", PODS, pod(name, labels={"keep": str(name == "b").lower()}))
        assert (await call("DELETE", f"{PODS}?labelSelector=keep=false"))[0] == 200
        assert [item["metadata"]["name"] for item in (await call("GET", PODS))[1]["items"]] == ["b"]


async def test_a_deleted_collection_is_answered_as_it_was_before() -> None:
    async with serving() as (_, call):
        made = (await call("POST", PODS, pod("a")))[1]
        answer = (await call("DELETE", PODS))[1]
    assert [item["metadata"] for item in answer["items"]] == [made["metadata"]]


@pytest.mark.parametrize(("plural", "kind"), [("resourcequotas", "ResourceQuota"), ("configmaps", "Status")])
async def test_what_a_deletion_answers_depends_on_the_kind(plural: str, kind: str) -> None:
    async with serving() as (_, call):
        path = f"/api/v1/namespaces/default/{plural}"
        await call("POST", path, {"metadata": {"name": "a"}})
        assert (await call("DELETE", f"{path}/a"))[1]["kind"] == kind


async def test_a_pod_that_is_going_is_made_to_go_sooner_and_never_later() -> None:
    async with serving() as (_, call):
        await call("POST", PODS, pod("a"))
        await call("POST", f"{PODS}/a/binding", {"target": {"name": "n"}})
        graces = []
        for asked in (60, None, 90, 20, -3):
            options = {} if asked is None else {"gracePeriodSeconds": asked}
            graces.append((await call("DELETE", f"{PODS}/a", options))[1]["metadata"]["deletionGracePeriodSeconds"])
    assert graces == [60, 60, 60, 20, 1]


async def test_a_pod_whose_shorter_grace_is_over_already_has_a_second() -> None:
    async with serving() as (server, call):
        await call("POST", PODS, pod("a"))
        await call("POST", f"{PODS}/a/binding", {"target": {"name": "n"}})
        await call("DELETE", f"{PODS}/a")
        pods = server.cluster.collection("pods")
        entry = pods.get("default", "a")
        assert entry is not None
        going = entry.decode()
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"  # asked for long ago
        server.cluster.store.put(pods, going, entry)
        left = (await call("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 5}))[1]["metadata"]
    assert left["deletionGracePeriodSeconds"] == 1
    assert left["deletionTimestamp"] > "2026-01-01T00:01:00Z"


@pytest.mark.parametrize(
    ("policy", "left"),
    [(None, ["a/b", "orphan"]), ("Foreground", ["a/b", "foregroundDeletion"]), ("Background", ["a/b"])],
)
async def test_a_deletion_says_anew_what_becomes_of_dependents(policy: str | None, left: list[str]) -> None:
    async with serving() as (_, call):
        path = "/api/v1/namespaces/default/configmaps"
        await call("POST", path, {"metadata": {"name": "held", "finalizers": ["a/b"]}})
        options = {"propagationPolicy": policy} if policy else {}
        await call("PATCH", f"{path}/held", {"metadata": {"finalizers": ["a/b", "orphan"]}}, MERGE)
        assert (await call("DELETE", f"{path}/held", options))[1]["metadata"]["finalizers"] == left


async def test_a_second_eviction_writes_nothing() -> None:
    async with serving() as (_, call):
        await call("POST", PODS, pod("a"))
        await call("POST", f"{PODS}/a/binding", {"target": {"name": "n"}})
        versions = []
        for _ in range(2):
            assert (await call("POST", f"{PODS}/a/eviction", {"metadata": {"name": "a"}}))[0] == 201
            versions.append((await call("GET", f"{PODS}/a"))[1]["metadata"]["resourceVersion"])
    assert versions[0] == versions[1]


async def test_deleting_a_namespace_takes_what_it_holds() -> None:
    async with serving() as (_, call):
        await call("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        inside = "/api/v1/namespaces/shop"
        await call("POST", f"{inside}/configmaps", {"metadata": {"name": "held", "finalizers": ["a/b"]}})
        await call("POST", f"{inside}/pods", pod())
        assert (await call("DELETE", inside))[1]["status"]["phase"] == "Terminating"
        code, answer = await call("POST", f"{inside}/pods", pod("late"))
        assert code == 403
        assert "being terminated" in answer["message"]
        assert (await call("GET", f"{inside}/pods"))[1]["items"] == []
        assert (await call("GET", inside))[0] == 200
        async with call.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name=shop") as events:
            assert (await anext(events))[0] == "ADDED"
            await call("PATCH", f"{inside}/configmaps/held", {"metadata": {"finalizers": None}}, MERGE)
            assert (await anext(events))[0] == "DELETED"
        assert (await call("GET", inside))[0] == 404


async def test_namespaces_of_every_cluster_stay() -> None:
    async with serving() as (_, call):
        assert (await call("DELETE", "/api/v1/namespaces/kube-system"))[0] == 403
        assert (await call("GET", "/api/v1/namespaces/kube-system"))[1]["status"]["phase"] == "Active"


async def test_eviction_respects_a_disruption_budget() -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    async with serving() as (_, call):
        for name in ("a", "b"):
            await call("POST", PODS, pod(name, labels={"app": "web"}))
            await call("POST", f"{PODS}/{name}/binding", {"target": {"name": "n"}})
            await call("PATCH", f"{PODS}/{name}/status", ready, MERGE)
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        await call("POST", budgets, {"metadata": {"name": "one"}, "spec": spec})
        # Two healthy pods, one needed: one may be disturbed.
        status = (await call("GET", f"{budgets}/one"))[1]["status"]
        assert (status["currentHealthy"], status["desiredHealthy"], status["disruptionsAllowed"]) == (2, 1, 1)
        assert (await call("POST", f"{PODS}/a/eviction", {"metadata": {"name": "a"}}))[0] == 201
        code, answer = await call("POST", f"{PODS}/b/eviction", {"metadata": {"name": "b"}})
        assert code == 429
        assert call.headers["Retry-After"] == "10"
        assert answer["details"]["causes"][0]["reason"] == "DisruptionBudget"
        assert (await call("GET", f"{PODS}/b"))[1]["metadata"].get("deletionTimestamp") is None


async def test_a_count_of_budgets_reads_a_pod_once_for_each_version_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets, read, decode = "/apis/policy/v1/namespaces/default/poddisruptionbudgets", list[str](), Entry.decode

    def spy(entry: Entry) -> dict[str, Any]:
        read.append(entry.name)
        return decode(entry)

    async with serving() as (server, call):
        for name in ("a", "b", "c"):
            await call("POST", PODS, pod(name, labels={"app": "web", "own": name}))
        for name, labels in (("one", {"app": "web"}), ("two", {"own": "a"}), ("none", {"app": "other"})):
            spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
            await call("POST", budgets, {"metadata": {"name": name}, "spec": spec})
        counter = BudgetCounter(server.cluster)
        monkeypatch.setattr(Entry, "decode", spy)
        for expected in (["a", "b", "c"], [], ["b"]):
            read.clear()
            counter.refresh("default")
            assert sorted(set(read) - {"one", "two", "none"}) == expected
            assert len(read) == len(expected) + 3
            if not expected:
                ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
                await call("PATCH", f"{PODS}/b/status", ready, MERGE)
        monkeypatch.undo()
        found = {one["metadata"]["name"]: one["status"] for one in (await call("GET", budgets))[1]["items"]}
    assert {name: one["currentHealthy"] for name, one in found.items()} == {"one": 1, "two": 0, "none": 0}
    assert {name: one["expectedPods"] for name, one in found.items()} == {"one": 3, "two": 1, "none": 0}


async def test_an_evicted_pod_says_so_before_it_goes() -> None:
    async with serving() as (_, call):
        await call("POST", PODS, pod("a"))
        await call("POST", f"{PODS}/a/binding", {"target": {"name": "n"}})
        uid = (await call("GET", f"{PODS}/a"))[1]["metadata"]["uid"]

        async def evict(wanted: str) -> int:
            body = {"metadata": {"name": "a"}, "deleteOptions": {"preconditions": {"uid": wanted}}}
            return int((await call("POST", f"{PODS}/a/eviction", body))[0])

        assert await evict("another") == 409
        conditions = (await call("GET", f"{PODS}/a"))[1]["status"]["conditions"]
        assert [condition["type"] for condition in conditions] == ["PodScheduled"]
        assert await evict(uid) == 201
        left = (await call("GET", f"{PODS}/a"))[1]
        assert left["metadata"]["deletionGracePeriodSeconds"] == 30
        disrupted = left["status"]["conditions"][-1]
        assert (disrupted["type"], disrupted["status"], disrupted["reason"]) == (
            "DisruptionTarget",
            "True",
            "EvictionByEvictionAPI",
        )

"""Laws and cases of the four ways to patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from emulator_client import MERGE, PODS, pod, serving
from hypothesis import given, settings
from hypothesis import strategies as st
from list_orders import ORDERS

from cotide_sim.apiserver.patch.field_sets import decode_fields, encode_fields, fields_of
from cotide_sim.apiserver.patch.json_patch import json_patch
from cotide_sim.apiserver.patch.merge_patch import merge_patch
from cotide_sim.apiserver.patch.strategic_patch import strategic_patch
from cotide_sim.apiserver.refusals import Refusal

KEYS = st.sampled_from(["a", "b", "c/d", "e~f", ""])
PLAIN = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "y"])
JSON = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)


def rfc7386(target: Any, patch: Any) -> Any:
    """The pseudo-code of RFC 7386, section 2, on values that are never changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = rfc7386(result.get(name), value)
    return result


@settings(max_examples=300, deadline=None)
@given(JSON, JSON)
def test_merge_patch_is_that_of_the_rfc_and_repeating_it_changes_nothing(target: Any, patch: Any) -> None:
    once = merge_patch(copy.deepcopy(target), copy.deepcopy(patch))
    assert once == rfc7386(target, patch)
    assert merge_patch(copy.deepcopy(once), copy.deepcopy(patch)) == once


def difference(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """JSON patch operations from one value to another, each the coarsest that is right."""
    if isinstance(before, dict) and isinstance(after, dict):
        operations = []
        for key in before:
            step = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in after:
                operations.append({"op": "remove", "path": step})
            else:
                operations += difference(before[key], after[key], step)
        for key in after:
            if key not in before:
                step = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
                operations.append({"op": "add", "path": step, "value": after[key]})
        return operations
    if (
        isinstance(before, list)
        and isinstance(after, list)
        and len(after) > len(before)
        and after[: len(before)] == before
    ):
        return [{"op": "add", "path": f"{path}/-", "value": item} for item in after[len(before) :]]
    return [{"op": "test", "path": path, "value": before}, {"op": "replace", "path": path, "value": after}]


@settings(max_examples=300, deadline=None)
@given(OBJECTS, OBJECTS)
def test_json_patch_carries_one_object_into_another(before: Any, after: Any) -> None:
    operations = difference(before, after)
    assert json_patch(copy.deepcopy(before), copy.deepcopy(operations)) == after


@settings(max_examples=200, deadline=None)
@given(OBJECTS, st.sampled_from(["copy", "move"]))
def test_copy_keeps_and_move_takes(before: dict[str, Any], op: str) -> None:
    before["from"] = {"deep": [1, 2]}
    after = json_patch(copy.deepcopy(before), [{"op": op, "from": "/from/deep", "path": "/to"}])
    assert after["to"] == [1, 2]
    assert ("deep" in after["from"]) == (op == "copy")


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "test", "path": "/a", "value": True}], 422),  # JSON's true is no 1, though Python's is
        ([{"op": "remove", "path": "/x"}], 422),
        ([{"op": "replace", "path": "/list/2", "value": 1}], 422),
        ([{"op": "add", "path": "/list/01", "value": 1}], 422),
        ([{"op": "add", "path": "/a/b", "value": 1}], 422),
        ([{"op": "move", "from": "/o", "path": "/o/in"}], 422),
        ([{"op": "paint", "path": "/a"}], 422),
        ([{"op": "add", "path": "/a"}], 422),
        ([{"op": "add", "path": "a", "value": 1}], 400),
        ({"op": "add"}, 400),
    ],
)
def test_json_patch_that_does_not_fit_is_refused(operations: Any, code: int) -> None:
    with pytest.raises(Refusal) as refused:
        json_patch({"a": 1, "list": [1, 2], "o": {}}, operations)
    assert refused.value.code == code


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b"]), JSON), st.dictionaries(st.sampled_from(["a", "b"]), PLAIN))
def test_strategic_patch_without_keyed_lists_is_a_merge_patch(target: Any, patch: Any) -> None:
    expected = merge_patch(copy.deepcopy(target), copy.deepcopy(patch))
    assert strategic_patch(copy.deepcopy(target), copy.deepcopy(patch)) == expected


def containers(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"containers": [{"name": name, "image": image} for name, image in pairs]}


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        (containers(("a", "1"), ("b", "1")), containers(("b", "2"), ("c", "1")),
         containers(("a", "1"), ("b", "2"), ("c", "1"))),
        (containers(("a", "1"), ("b", "1")), {"containers": [{"name": "a", "$patch": "delete"}]},
         containers(("b", "1"))),
        (containers(("a", "1")), {"containers": [{"$patch": "replace"}, {"name": "z", "image": "9"}]},
         containers(("z", "9"))),
        ({"spec": {"x": 1, "y": 2}}, {"spec": {"$patch": "replace", "z": 3}}, {"spec": {"z": 3}}),
        ({"spec": {"x": 1}}, {"spec": {"$patch": "delete"}}, {}),
        ({"strategy": {"type": "A", "old": 1}}, {"strategy": {"$retainKeys": ["type"], "type": "B"}},
         {"strategy": {"type": "B"}}),
        (containers(("a", "1"), ("b", "1")), {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
         containers(("b", "1"), ("a", "1"))),
        ({"ports": [{"containerPort": 1, "name": "x"}]}, {"ports": [{"containerPort": 1, "name": "y"}]},
         {"ports": [{"containerPort": 1, "name": "y"}]}),
        ({"ports": [{"port": 1}]}, {"ports": [{"port": 2}]}, {"ports": [{"port": 2}, {"port": 1}]}),
        ({"conditions": [{"type": "A", "status": "x"}]}, {"conditions": [{"type": "B", "status": "y"}]},
         {"conditions": [{"type": "B", "status": "y"}, {"type": "A", "status": "x"}]}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
    ],
)  # fmt: skip
def test_strategic_patch_merges_lists_by_their_keys(target: Any, patch: Any, expected: Any) -> None:
    assert strategic_patch(target, patch) == expected


@pytest.mark.parametrize("shown", ORDERS)
def test_strategic_patch_leaves_lists_in_the_order_of_a_real_server(shown: str) -> None:
    order = ORDERS[shown]
    assert order.found(strategic_patch(copy.deepcopy(order.before), copy.deepcopy(order.patch))) == order.after


def test_strategic_patch_refuses_what_it_can_not_place() -> None:
    for patch in ({"containers": [{"image": "x"}]}, {"spec": {"$patch": "paint"}}):
        with pytest.raises(Refusal, match=r"merge key|directive"):
            strategic_patch({"containers": [], "spec": {}}, patch)


@settings(max_examples=200, deadline=None)
@given(OBJECTS)
def test_field_sets_survive_their_encoding(obj: dict[str, Any]) -> None:
    fields = set(fields_of({"spec": obj}, None, custom=True))
    assert decode_fields(encode_fields(fields)) == fields


async def test_an_apply_heeds_what_others_wrote_without_applying() -> None:
    async with serving() as (_, call):
        path = "/api/v1/namespaces/default/configmaps"

        async def apply(query: str = "", **labels: str) -> tuple[int, dict[str, str]]:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": labels}}
            code, answer = await call("PATCH", f"{path}/a?fieldManager=m{query}", body, "application/apply-patch+yaml")
            return code, answer["metadata"].get("labels", {})

        async def merge(**labels: str | None) -> None:
            assert (await call("PATCH", f"{path}/a", {"metadata": {"labels": labels}}, MERGE))[0] == 200

        await call("POST", path, {"metadata": {"name": "a", "labels": {"made": "1"}}})
        assert await apply(made="1", own="1") == (200, {"made": "1", "own": "1"})
        assert await apply() == (200, {"made": "1"}), "what its maker wrote is not the applier's to take away"
        assert (await apply(made="2"))[0] == 409
        assert await apply("&force=true", made="2") == (200, {"made": "2"})
        await merge(made="3")
        assert (await apply(made="2"))[0] == 409, "an update took the label over"
        assert await apply() == (200, {"made": "3"})
        await merge(made=None)
        assert await apply(made="2") == (200, {"made": "2"})
        assert await apply() == (200, {})


async def test_finalizers_of_leases_need_no_domain_and_those_of_pods_do() -> None:
    async with serving() as (_, call):
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        for path, finalizer, code in (
            (leases, "nodomain", 201), (leases, "no name!", 422), (PODS, "nodomain", 422), (PODS, "a.b/c", 201),
        ):  # fmt: skip
            body = {**(pod() if path == PODS else {}), "metadata": {"generateName": "a-", "finalizers": [finalizer]}}
            assert (await call("POST", path, body))[0] == code


async def test_a_replaced_budget_or_lease_says_which_version_it_replaces_and_a_config_map_need_not() -> None:
    space = "namespaces/default"
    kinds = {
        f"/apis/policy/v1/{space}/poddisruptionbudgets": (422, {"minAvailable": 1}),
        f"/apis/coordination.k8s.io/v1/{space}/leases": (422, {"holderIdentity": "me", "leaseDurationSeconds": 15}),
        f"/api/v1/{space}/configmaps": (200, {}),
    }
    async with serving() as (_, call):
        for path, (code, spec) in kinds.items():
            body = {"metadata": {"name": "a"}, **({"spec": spec} if spec else {})}
            assert (await call("POST", path, body))[0] == 201
            assert (await call("PUT", f"{path}/a", body))[0] == code, path
        lease = {"metadata": {"name": "b", "resourceVersion": "nonsense"}, "spec": {"holderIdentity": "me"}}
        leases = f"/apis/coordination.k8s.io/v1/{space}/leases"
        assert (await call("PUT", f"{leases}/b?dryRun=All", lease))[0] == 400, "even where it would make one for show"


async def test_an_event_and_a_budget_may_have_a_name_that_a_pod_may_not() -> None:
    event = {"metadata": {"name": "Bad_Name"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    async with serving() as (_, call):
        assert (await call("POST", "/api/v1/namespaces/default/events", event))[0] == 201
        budget = {"metadata": {"name": "Bad_Name"}, "spec": {"minAvailable": 1}}
        assert (await call("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget))[0] == 201
        assert (await call("POST", PODS, pod("Bad_Name")))[0] == 422

"""Custom kinds: schemas, columns, versions, scale and apply, over real HTTP."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from cotide_sim.apiserver.http.tables import human_age
from cotide_sim.apiserver.patch.json_path import compile_path
from cotide_sim.apiserver.registry.schema import faults, shape
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.apiserver.testing import running_server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WORKLOADS = "/apis/example.dev/v1/namespaces/default/workloads"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}

QOS = {
    "type": "object",
    "properties": {
        "latencyP95Milliseconds": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "default": 10},
        "mode": {"type": "string", "enum": ["soft", "hard"]},
    },
    "default": {},
}
SPEC = {
    "type": "object",
    "required": ["replicas"],
    "properties": {
        "qos": QOS,
        "replicas": {"type": "integer", "minimum": 0, "maximum": 5},
        "size": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "nick": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4, "nullable": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {
            "type": "array", "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {"type": "object", "required": ["id"], "properties": {
                "id": {"type": "string"}, "weight": {"type": "integer", "default": 1}}},
        },
    },
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": SPEC,
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def definition(**version: Any) -> dict[str, Any]:
    one = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {
            "status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.ready"},
        },
        "additionalPrinterColumns": [
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        **version,
    }  # fmt: skip
    names = {"plural": "workloads", "kind": "Workload", "shortNames": ["cwl"], "categories": ["cotide"]}
    spec = {"group": "example.dev", "scope": "Namespaced", "names": names, "versions": [one]}
    return {"metadata": {"name": "workloads.example.dev"}, "spec": spec}


def example_workload(name: str = "shop", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.dev/v1",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"replicas": 1, **spec},
    }


class Client:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.headers: dict[str, str] = {}

    async def __call__(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, path, data=data, headers={"Content-Type": kind, **headers}) as answer:
            self.headers = dict(answer.headers)
            return answer.status, await answer.json()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[ApiServer, Client]]:
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:
        call = Client(session)
        assert (await call("POST", CRDS, definition()))[0] == 201
        yield server, call


async def test_definition_is_established_and_served_at_once() -> None:
    async with serving() as (_, call):
        conditions = (await call("GET", f"{CRDS}/workloads.example.dev"))[1]["status"]["conditions"]
        assert {"Established": "True"}.items() <= {
            condition["type"]: condition["status"] for condition in conditions
        }.items()
        listed = (await call("GET", "/apis/example.dev/v1"))[1]["resources"]
        assert [one["name"] for one in listed] == ["workloads", "workloads/scale", "workloads/status"]
        assert (listed[0]["shortNames"], listed[0]["categories"]) == (["cwl"], ["cotide"])
        described = (await call("GET", "/openapi/v3/apis/example.dev/v1"))[1]["components"]["schemas"]
        fields = described["dev.example.v1.Workload"]["properties"]["spec"]["properties"]
        assert {"qos", "replicas", "size", "parts"} <= fields.keys()


async def test_withdrawn_definition_takes_its_objects_along() -> None:
    async with serving() as (_, call):
        assert (await call("POST", WORKLOADS, example_workload()))[0] == 201
        assert (await call("DELETE", f"{CRDS}/workloads.example.dev"))[0] == 200
        assert (await call("GET", WORKLOADS))[0] == 404
        await call("POST", CRDS, definition())
        assert (await call("GET", WORKLOADS))[1]["items"] == []


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"qos": {"latencyP95Milliseconds": "abc"}},
         'spec.qos.latencyP95Milliseconds: Invalid value: "string": '
         'spec.qos.latencyP95Milliseconds in body must be of type number: "string"'),
        ({"qos": {"latencyP95Milliseconds": 0}}, "should be greater than 0"),
        ({"qos": {"mode": "odd"}}, 'spec.qos.mode: Unsupported value: "odd": supported values: "soft", "hard"'),
        ({"replicas": 6}, "spec.replicas: Invalid value: 6: spec.replicas in body should be less than or equal to 5"),
        ({"replicas": 1.5}, 'spec.replicas: Invalid value: "number": spec.replicas in body must be of type integer'),
        ({"replicas": True}, 'spec.replicas: Invalid value: "boolean": spec.replicas in body must be of type integer'),
        ({"size": True}, 'spec.size: Invalid value: "boolean": spec.size in body must be of type integer or string'),
        ({"nick": "X1"}, "spec.nick: Invalid value: \"X1\": spec.nick in body should match '^[a-z]+$'"),
        ({"nick": "a"}, "should be at least 2 chars long"),
        ({"nick": "abcde"}, "spec.nick: Too long"),
        ({"labels": {"a": 1}}, 'spec.labels.a: Invalid value: "integer": spec.labels.a in body must be of type string'),
        ({"parts": [{"weight": 2}]}, "spec.parts[0].id: Required value"),
        ({"parts": [{"id": "a"}, {"id": "a"}]}, "spec.parts[1]: Duplicate value"),
        ({"parts": [{"id": str(i)} for i in range(4)]}, "spec.parts: Too many: 4: must have at most 3 items"),
        ({"parts": {}}, 'spec.parts: Invalid value: "object": spec.parts in body must be of type array'),
    ],
)  # fmt: skip
async def test_object_that_breaks_its_schema_is_refused_with_the_field(spec: dict[str, Any], text: str) -> None:
    async with serving() as (_, call):
        code, answer = await call("POST", WORKLOADS, example_workload(**spec))
        assert (code, answer["reason"]) == (422, "Invalid")
        assert text in answer["message"]
        assert answer["details"]["causes"]


async def test_defaults_fill_in_and_unknown_fields_are_pruned_warned_of_or_refused() -> None:
    async with serving() as (_, call):
        body = example_workload(typo=1, free={"any": 1}, parts=[{"id": "a", "extra": 1}], nick=None, size="1Gi")
        code, answer = await call("POST", f"{WORKLOADS}?fieldValidation=Strict", copy.deepcopy(body))
        assert code == 400
        unknown = ('unknown field "spec.typo"', 'unknown field "spec.parts[0].extra"')
        assert answer["message"] == f"strict decoding error: {', '.join(unknown)}"
        code, made = await call("POST", f"{WORKLOADS}?fieldValidation=Warn", body)
        assert code == 201
        assert 'unknown field \\"spec.typo\\"' in call.headers["Warning"]
        assert made["spec"] == {
            "replicas": 1, "free": {"any": 1}, "parts": [{"id": "a", "weight": 1}], "nick": None, "size": "1Gi",
            "qos": {"latencyP95Milliseconds": 10},
        }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema": {}}, "schema.openAPIV3Schema: Required value"),
        ({"schema": {"openAPIV3Schema": {"type": "string"}}}, "must be object at the root"),
        (
            {"schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}},
            "properties[a].type: Required value",
        ),
        ({"schema": {"openAPIV3Schema": {"type": "object", "$defs": {}}}}, "$defs: Forbidden"),
        ({"storage": False}, "exactly one version marked as storage version"),
        ({"additionalPrinterColumns": [{"name": "x", "jsonPath": ".a[?"}]}, "additionalPrinterColumns[0].jsonPath"),
    ],
)
async def test_definition_that_can_not_be_served_is_refused(change: dict[str, Any], text: str) -> None:
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:
        code, answer = await Client(session)("POST", CRDS, definition(**change))
        assert code == 422
        assert text in answer["message"]


async def test_table_has_the_columns_of_the_definition() -> None:
    async with serving() as (_, call):
        await call("POST", WORKLOADS, example_workload())
        ready = {"status": {"conditions": [{"type": "Other", "status": "no"}, {"type": "Ready", "status": "yes"}]}}
        await call("PATCH", f"{WORKLOADS}/shop/status", ready, "application/merge-patch+json")
        table = (await call("GET", WORKLOADS, **TABLE))[1]
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Replicas", "Ready", "Age"]
        assert table["rows"][0]["cells"][:3] == ["shop", 1, "yes"]
        assert table["rows"][0]["cells"][3].endswith("s")
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_scale_reads_and_writes_the_replicas() -> None:
    async with serving() as (_, call):
        await call("POST", WORKLOADS, example_workload())
        scale = (await call("GET", f"{WORKLOADS}/shop/scale"))[1]
        assert scale["spec"] == {"replicas": 1}
        body = {"spec": {"replicas": 4}}
        assert (await call("PATCH", f"{WORKLOADS}/shop/scale", body, "application/merge-patch+json"))[0] == 200
        assert (await call("GET", f"{WORKLOADS}/shop"))[1]["spec"]["replicas"] == 4
        scale["spec"]["replicas"] = 9
        assert (await call("PUT", f"{WORKLOADS}/shop/scale", scale))[0] == 409


async def test_two_versions_show_one_object() -> None:
    async with running_server() as server, aiohttp.ClientSession(server.url) as session:
        call = Client(session)
        crd = definition()
        crd["spec"]["versions"].append({**crd["spec"]["versions"][0], "name": "v2", "storage": False})
        await call("POST", CRDS, crd)
        await call("POST", WORKLOADS, example_workload())
        newer = WORKLOADS.replace("/v1/", "/v2/")
        assert (await call("GET", f"{newer}/shop"))[1]["apiVersion"] == "example.dev/v2"
        change = {"spec": {"replicas": 3}}
        assert (await call("PATCH", f"{newer}/shop", change, "application/merge-patch+json"))[0] == 200
        shown = (await call("GET", f"{WORKLOADS}/shop"))[1]
        assert (shown["apiVersion"], shown["spec"]["replicas"]) == ("example.dev/v1", 3)


async def test_apply_creates_merges_removes_and_tells_of_conflicts() -> None:
    async with serving() as (_, call):

        async def apply(manager: str, query: str = "", **spec: Any) -> tuple[int, Any]:
            body = {"apiVersion": "example.dev/v1", "kind": "Workload", "metadata": {"name": "shop"}, "spec": spec}
            path = f"{WORKLOADS}/shop?fieldManager={manager}{query}"
            return await call("PATCH", path, body, "application/apply-patch+yaml")

        status, made = await apply("one", replicas=1, labels={"a": "1"}, parts=[{"id": "x", "weight": 5}])
        assert status == 201
        assert made["metadata"]["managedFields"][0]["manager"] == "one"
        status, both = await apply("two", parts=[{"id": "y"}])
        assert status == 200
        assert [part["id"] for part in both["spec"]["parts"]] == ["x", "y"]
        status, refused = await apply("two", replicas=2)
        assert (status, refused["details"]["causes"][0]["field"]) == (409, ".spec.replicas")
        status, forced = await apply("two", "&force=true", replicas=2, parts=[{"id": "y"}])
        assert (status, forced["spec"]["replicas"]) == (200, 2)
        # What `one` applied and no longer applies goes; what `two` holds now stays.
        status, less = await apply("one", parts=[])
        assert status == 200
        assert (less["spec"].get("labels"), less["spec"]["replicas"]) == (None, 2)
        assert [part["id"] for part in less["spec"]["parts"]] == ["y"]
        again = await apply("one", parts=[])
        assert again[1]["metadata"]["resourceVersion"] == less["metadata"]["resourceVersion"]


def test_shaping_twice_changes_nothing_more() -> None:
    obj = example_workload(parts=[{"id": "a", "z": 1}], zzz=1)
    assert shape(obj, SCHEMA) == ["spec.parts[0].z", "spec.zzz"]
    once = copy.deepcopy(obj)
    assert shape(obj, SCHEMA) == []
    assert obj == once
    assert faults(obj, SCHEMA) == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".a.b", [1]), ("{.a.b}", [1]), ("$.a.b", [1]), (".a['b']", [1]), (".list[0].n", ["x"]), (".list[-1].n", ["y"]),
        (".list[*].n", ["x", "y"]), ('.list[?(@.n=="y")].v', [2]), (".missing.b", []), (r".m.k\.io/x", [3]),
    ],
)  # fmt: skip
def test_json_path_reads(path: str, expected: list[Any]) -> None:
    obj = {"a": {"b": 1}, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}], "m": {"k.io/x": 3}}
    assert compile_path(path)(obj) == expected


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (150, "2m30s"), (3_600, "60m"), (3 * 3_600, "3h"), (9_000, "150m"),
     (4 * 3_600 + 120, "4h2m"), (30 * 3_600, "30h"), (3 * 86_400, "3d"), (400 * 86_400, "400d")],
)  # fmt: skip
def test_ages_are_shown_as_kubectl_shows_them(seconds: int, text: str) -> None:
    assert human_age(seconds) == text

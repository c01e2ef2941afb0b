"""The HTTP surface of the embedded API server, with a plain HTTP client."""

from __future__ import annotations

from typing import Any

import pytest
from emulator_client import CRDS, GADGETS, MERGE, PODS, definition, pod, serving

from cotide_sim.apiserver.cluster import Settings


async def test_created_object_has_identity_version_and_creation_time() -> None:
    async with serving() as (_, call):
        status, made = await call("POST", PODS, pod())
        assert status == 201
        metadata = made["metadata"]
        assert metadata["uid"]
        assert metadata["creationTimestamp"].endswith("Z")
        assert int(metadata["resourceVersion"]) > 0
        assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
        assert await call("GET", f"{PODS}/web") == (200, made)


async def test_generated_names_differ() -> None:
    async with serving() as (_, call):
        first = (await call("POST", PODS, pod("", generateName="job-")))[1]["metadata"]["name"]
        second = (await call("POST", PODS, pod("", generateName="job-")))[1]["metadata"]["name"]
        assert first.startswith("job-")
        assert len(first) == len("job-") + 5
        assert first != second


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        (PODS, b"{", 400, "can't be read as JSON"),
        (PODS, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}}, 400, "Kind=Node"),
        (PODS, {**pod(), "metadata": {}}, 422, "metadata.name: Required value"),
        (PODS, pod("Web"), 422, 'metadata.name: Invalid value: "Web"'),
        (PODS, pod(labels={"a": "b c"}), 422, 'metadata.labels: Invalid value: "b c"'),
        (PODS, pod(namespace="other"), 400, "does not match the namespace"),
        (PODS, pod(resourceVersion="3"), 400, "resourceVersion should not be set"),
        ("/api/v1/namespaces/missing/pods", pod(), 404, 'namespaces "missing" not found'),
        ("/api/v1/namespaces/default/cows", pod(), 404, "could not find the requested resource"),
        (PODS, pod(spec={"containers": []}), 422, "spec.containers: Required value"),
        (PODS, pod(spec={"priorityClassName": "none"}), 403, "no PriorityClass with name none was found"),
    ],
)
async def test_bad_creation_is_refused_with_the_field(path: str, body: Any, status: int, text: str) -> None:
    async with serving() as (_, call):
        code, answer = await call("POST", path, body)
        assert code == status
        assert answer["kind"] == "Status"
        assert answer["code"] == status
        assert text in answer["message"]


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ({"requests": {"cpu": "abc"}}, "spec.containers[0].resources.requests[cpu]: Invalid value"),
        ({"requests": {"cpu": "-1"}}, "must be greater than or equal to 0"),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, "must be less than or equal to cpu limit of 1"),
        ({"requests": {"cows": "1"}}, "must be a standard resource type or fully qualified"),
        ({"requests": {"example.dev/x": "1"}}, "Limit must be set for non overcommitable resources"),
        ({"limits": {"example.dev/x": "500m"}}, "must be an integer"),
    ],
)
async def test_pod_resources_are_validated(resources: dict[str, Any], text: str) -> None:
    container = {"name": "main", "image": "i", "resources": resources}
    async with serving() as (_, call):
        code, answer = await call("POST", PODS, pod(spec={"containers": [container]}))
        assert code == 422
        assert text in answer["message"]


async def test_quantities_given_as_numbers_are_read_back_as_text() -> None:
    container = {"name": "main", "image": "i", "resources": {"limits": {"cpu": 2, "memory": 1.5e9}}}
    async with serving() as (_, call):
        made = (await call("POST", PODS, pod(spec={"containers": [container]})))[1]
        resources = made["spec"]["containers"][0]["resources"]
        # A limit without a request is the request too.
        assert resources == {"limits": {"cpu": "2", "memory": "1500000000.0"}} | {"requests": resources["limits"]}
        assert made["status"]["qosClass"] == "Guaranteed"
        node = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": 4}, "allocatable": {"cpu": "many"}}}
        code, answer = await call("POST", "/api/v1/nodes", node)
        assert (code, "status.allocatable[cpu]" in answer["message"]) == (422, True)
        node["status"] = {"capacity": {"cpu": 4}}
        assert (await call("POST", "/api/v1/nodes", node))[1]["status"]["capacity"] == {"cpu": "4"}


async def test_mistyped_pod_fields_are_dropped_with_a_warning_or_refused() -> None:
    wrong = pod(spec={"nodeSelektor": {}, "containers": [{"name": "c", "image": "i", "resources": {"request": {}}}]})
    async with serving() as (_, call):
        code, answer = await call("POST", f"{PODS}?fieldValidation=Strict", wrong)
        assert code == 400
        for path in ("spec.nodeSelektor", "spec.containers[0].resources.request"):
            assert f'unknown field "{path}"' in answer["message"]
        code, made = await call("POST", PODS, wrong)
        assert code == 201
        assert "nodeSelektor" in call.headers["Warning"]
        assert "nodeSelektor" not in made["spec"]


async def test_stale_version_wrong_uid_and_taken_name_conflict() -> None:
    async with serving() as (_, call):
        made = (await call("POST", PODS, pod()))[1]
        assert (await call("POST", PODS, pod()))[1]["reason"] == "AlreadyExists"
        made["metadata"]["labels"] = {"a": "1"}
        status, newer = await call("PUT", f"{PODS}/web", made)
        assert status == 200
        status, answer = await call("PUT", f"{PODS}/web", made)
        assert (status, answer["reason"]) == (409, "Conflict")
        assert "the object has been modified" in answer["message"]
        newer["metadata"] |= {"uid": "other", "labels": {}}
        assert (await call("PUT", f"{PODS}/web", newer))[0] == 409


async def test_status_and_spec_are_written_apart_and_generation_follows_spec() -> None:
    async with serving() as (_, call):
        await call("POST", CRDS, definition())
        made = (await call("POST", GADGETS, {"metadata": {"name": "a"}, "spec": {"x": 1}, "status": {"y": 1}}))[1]
        assert "status" not in made
        assert made["metadata"]["generation"] == 1
        body = {"spec": {"x": 2}, "status": {"y": 2}}
        shown = (await call("PATCH", f"{GADGETS}/a/status", body, MERGE))[1]
        assert (shown["spec"], shown["status"], shown["metadata"]["generation"]) == ({"x": 1}, {"y": 2}, 1)
        shown = (await call("PATCH", f"{GADGETS}/a", {"spec": {"x": 3}, "status": {"y": 3}}, MERGE))[1]
        assert (shown["spec"], shown["status"], shown["metadata"]["generation"]) == ({"x": 3}, {"y": 2}, 2)
        again = (await call("PATCH", f"{GADGETS}/a", {"spec": {"x": 3}}, MERGE))[1]
        assert again["metadata"]["resourceVersion"] == shown["metadata"]["resourceVersion"]


async def test_dry_run_changes_nothing() -> None:
    async with serving() as (server, call):
        version = server.cluster.store.version
        assert (await call("POST", f"{PODS}?dryRun=All", pod()))[0] == 201
        assert (await call("GET", f"{PODS}/web"))[0] == 404
        assert server.cluster.store.version == version


async def test_lists_select_by_label_and_field() -> None:
    async with serving() as (_, call):
        for name, labels in (("a", {"app": "x", "n": "1"}), ("b", {"app": "y", "n": "5"}), ("c", {})):
            await call("POST", PODS, pod(name, labels=labels))
        await call("POST", f"{PODS}/b/binding", {"target": {"name": "node-1"}})

        async def names(query: str) -> list[str]:
            status, answer = await call("GET", f"/api/v1/pods?{query}")
            assert status == 200, answer
            return [item["metadata"]["name"] for item in answer["items"]]

        for query, expected in [
            ("labelSelector=app%3Dx", ["a"]), ("labelSelector=app!%3Dx", ["b", "c"]), ("labelSelector=app", ["a", "b"]),
            ("labelSelector=!app", ["c"]), ("labelSelector=app in (x,y),n notin (1)", ["b"]),
            ("labelSelector=n>2", ["b"]), ("fieldSelector=metadata.name=c", ["c"]),
            ("fieldSelector=spec.nodeName=node-1", ["b"]), ("fieldSelector=spec.nodeName=", ["a", "c"]),
            ("fieldSelector=spec.nodeName!=node-1,metadata.name!=a", ["c"]),
            ("fieldSelector=status.phase=Pending,metadata.namespace=default", ["a", "b", "c"]),
            ("fieldSelector=metadata.namespace=other", []), ("fieldSelector=spec.schedulerName=cotide", []),
        ]:  # fmt: skip
            assert await names(query) == expected, query
        for query in ("fieldSelector=spec.color=red", "labelSelector=a b c", "fieldSelector=name"):
            assert (await call("GET", f"/api/v1/pods?{query}"))[0] == 400


async def test_pages_of_a_list_show_one_version() -> None:
    async with serving() as (_, call):
        for index in range(7):
            await call("POST", PODS, pod(f"p{index}"))
        first = (await call("GET", f"{PODS}?limit=3"))[1]
        assert first["metadata"]["remainingItemCount"] == 4
        await call("DELETE", f"{PODS}/p5")
        names, token = [item["metadata"]["name"] for item in first["items"]], first["metadata"]["continue"]
        while token:
            page = (await call("GET", f"{PODS}?limit=3&continue={token}"))[1]
            assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
            names += [item["metadata"]["name"] for item in page["items"]]
            token = page["metadata"].get("continue")
        assert names == [f"p{index}" for index in range(7)]
        assert (await call("GET", f"{PODS}?limit=3&continue=nonsense"))[0] == 400


async def test_binding_sets_node_annotations_and_condition_once() -> None:
    async with serving() as (_, call):
        made = (await call("POST", PODS, pod(annotations={"kept": "1"})))[1]
        binding = {
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": "web", "uid": made["metadata"]["uid"], "annotations": {"cotide.dev/decision": "{}"}},
            "target": {"kind": "Node", "name": "node-1"},
        }  # fmt: skip
        wrong = {**binding, "metadata": {"name": "web", "uid": "another"}}
        assert (await call("POST", f"{PODS}/web/binding", wrong))[0] == 409
        assert (await call("POST", f"{PODS}/web/binding", {"target": {}}))[0] == 400
        status, answer = await call("POST", f"{PODS}/web/binding", binding)
        assert (status, answer["status"]) == (201, "Success")
        bound = (await call("GET", f"{PODS}/web"))[1]
        assert bound["spec"]["nodeName"] == "node-1"
        assert bound["metadata"]["annotations"] == {"kept": "1", "cotide.dev/decision": "{}"}
        assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
        status, answer = await call("POST", f"{PODS}/web/binding", binding)
        assert status == 409
        assert 'already assigned to node "node-1"' in answer["message"]
        assert (await call("POST", f"{PODS}/gone/binding", {"target": {"name": "n"}}))[0] == 404


async def test_gated_pod_is_not_bound_until_its_gates_are_gone() -> None:
    async with serving() as (_, call):
        made = (await call("POST", PODS, pod(spec={"schedulingGates": [{"name": "wait"}]})))[1]
        assert made["status"]["conditions"][0]["reason"] == "SchedulingGated"
        assert (await call("POST", f"{PODS}/web/binding", {"target": {"name": "n"}}))[0] == 409
        open_gates = {"spec": {"schedulingGates": None}}
        assert (await call("PATCH", f"{PODS}/web", open_gates, MERGE))[0] == 200
        assert (await call("POST", f"{PODS}/web/binding", {"target": {"name": "n"}}))[0] == 201


async def test_pod_spec_is_immutable_but_for_what_kubernetes_allows() -> None:
    async with serving() as (_, call):
        await call("POST", PODS, pod())
        code, answer = await call("PATCH", f"{PODS}/web", {"spec": {"nodeName": "n"}}, MERGE)
        assert code == 422
        assert "pod updates may not change fields other than" in answer["message"]
        new_image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "other:2"}]
        assert (await call("PATCH", f"{PODS}/web", new_image, "application/json-patch+json"))[0] == 200


async def test_both_event_groups_show_the_same_events() -> None:
    async with serving() as (_, call):
        core = {
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"},
            "reason": "Scheduled", "message": "ok", "type": "Normal", "count": 1,
        }  # fmt: skip
        assert (await call("POST", "/api/v1/namespaces/default/events", core))[0] == 201
        newer = "/apis/events.k8s.io/v1/namespaces/default/events"
        shown = (await call("GET", f"{newer}/e"))[1]
        assert (shown["apiVersion"], shown["regarding"]["name"], shown["note"]) == ("events.k8s.io/v1", "web", "ok")
        other = {**shown, "metadata": {"name": "f"}, "note": "second"}
        assert (await call("POST", newer, other))[0] == 201
        query = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=web,type=Normal"
        assert [item["message"] for item in (await call("GET", query))[1]["items"]] == ["ok", "second"]


async def test_events_are_dropped_when_they_were_not_written_for_long_enough() -> None:
    events = "/api/v1/namespaces/default/events"
    async with serving(settings=Settings(event_ttl_seconds=60)) as (server, call):
        now = 0.0
        server.reactions.clock = lambda: now
        for name in ("old", "repeated"):
            await call("POST", events, {"metadata": {"name": name}, "count": 1})
        now = 50.0
        await call("PATCH", f"{events}/repeated", {"count": 2}, MERGE)
        now = 61.0
        server.reactions.expire_events()
        assert [item["metadata"]["name"] for item in (await call("GET", events))[1]["items"]] == ["repeated"]
        now = 111.0
        server.reactions.expire_events()
        assert (await call("GET", events))[1]["items"] == []

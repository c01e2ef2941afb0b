import json

import msgspec
import pytest
from manifests import pod_manifest

from cotide_kube.decoding import Bookmark, Malformed, ObjectDecoder, WatchFailed
from cotide_kube.objects import PodObject

PODS = ObjectDecoder(PodObject)


def pod(name="web", version="7", **more):
    """A pod of a version."""
    return pod_manifest(name, namespace="shop", uid=f"u-{name}", resourceVersion=version) | more


def line(kind, found):
    return json.dumps({"type": kind, "object": found}).encode()


def test_the_fields_that_a_scheduler_needs_are_read():
    spec = {
        "nodeName": "n1",
        "schedulerName": "cotide",
        "containers": [
            {"name": "a", "resources": {"requests": {"cpu": 2, "memory": "1Gi"}}, "ports": [{"hostPort": 80}]}
        ],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "schedulingGates": [{"name": "wait"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "In", "values": ["a"]}]}]
                }
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]},
        },
        "unknownField": {"deep": [1, 2]},
    }
    status = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"name": "a", "state": {"running": {}}}]}
    kind, found = PODS.line(line("ADDED", pod(spec=spec, status=status)))
    assert kind == "ADDED"
    assert found.spec.containers[0].resources.requests == {"cpu": 2, "memory": "1Gi"}
    assert found.spec.containers[0].ports[0].host_port == 80
    assert found.spec.init_containers[0].restart_policy == "Always"
    assert found.spec.scheduling_gates[0].name == "wait"
    required = found.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required.node_selector_terms[0].match_expressions[0].values == ("a",)
    anti = found.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    assert [(term.topology_key, term.label_selector) for term in anti] == [("host", None)]
    assert found.status.pod_ip == "10.0.0.1"
    assert found.status.container_statuses[0].state.running is not None


def test_nulls_stand_for_nothing():
    found = pod(spec={"containers": None, "nodeSelector": None})
    found["metadata"] |= {"labels": None, "creationTimestamp": None, "ownerReferences": None}
    kind, decoded = PODS.line(line("MODIFIED", found))
    assert (kind, decoded.metadata.labels, decoded.spec.containers) == ("MODIFIED", {}, ())


def test_a_malformed_object_is_named_with_its_field_and_version():
    found = pod()
    found["metadata"]["labels"] = {"a": 1}
    bad = PODS.line(line("DELETED", found))
    assert isinstance(bad, Malformed)
    assert (bad.name, bad.resource_version, bad.kind) == ("shop/web", "7", "DELETED")
    assert "$.metadata.labels" in bad.fault


def test_garbage_lines_are_values_too():
    for garbage in (b"{", b"\xff\xfe", b"[]", b'{"type": "ADDED"}', b'{"type": "PARTY", "object": {}}'):
        assert isinstance(PODS.line(garbage), Malformed)


def test_bookmarks_and_errors_are_told_apart_from_objects():
    assert PODS.line(line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "99"}})) == Bookmark("99")
    failed = PODS.line(line("ERROR", {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}))
    assert failed == WatchFailed(410, "too old")
    assert PODS.line(line("ERROR", {"kind": "Status", "reason": "Expired"})) == WatchFailed(410, "Expired")


def test_one_bad_object_does_not_spoil_a_page():
    bad = pod("bad")
    bad["spec"] = {"containers": "none"}
    body = json.dumps({"metadata": {"resourceVersion": "5", "continue": "more"}, "items": [pod("a"), bad, pod("b")]})
    page = PODS.page(body.encode())
    assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert [one.name for one in page.malformed] == ["shop/bad"]
    assert (page.resource_version, page.continue_token) == ("5", "more")


@pytest.mark.parametrize("body", [b"{}", b'{"metadata": {"resourceVersion": "5"}}', b'{"items": {}}', b"[]", b"null"])
@pytest.mark.parametrize("decoder", [PODS, ObjectDecoder(PodObject, most_bytes=1000)], ids=["fields", "any shape"])
async def test_an_answer_without_items_is_no_list_and_not_an_empty_one(body, decoder):
    with pytest.raises(msgspec.DecodeError):
        decoder.page(body)
    with pytest.raises(msgspec.DecodeError):
        await decoder.page_in_turns(body)


def test_an_empty_list_may_be_null():
    assert PODS.page(b'{"metadata": {"resourceVersion": "5"}, "items": null}').items == []

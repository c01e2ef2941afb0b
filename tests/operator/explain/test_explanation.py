"""Explanations: everything that is said stands in an object, an event or the note."""

from __future__ import annotations

from typing import Any

import pytest
from manifests import our_pod_manifest

from cotide_core.instructions import Forecast, NodeVerdict, WaitReason
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.cache.decision_store import Decision
from cotide_operator.explain.class_rule import ClassContext
from cotide_operator.explain.explanation import EVENTS_SHOWN, Explanation, explain_job, explain_pod, relevant_node
from cotide_operator.explain.volume_wait import claim_names_of
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, encode

NOW = parse_timestamp("2026-11-20T13:05:00Z")
REFUSED = (
    NodeVerdict(25, "would break the latency limit of shop/web", WaitReason.QOS_AT_RISK, "fake-1", 0.83),
    NodeVerdict(15, "Insufficient cpu", WaitReason.INSUFFICIENT_SLACK, "fake-9"),
)


def note(**more: Any) -> str:
    values: dict[str, Any] = {
        "key": "shop/count-0",
        "uid": "u0",
        "decided_seconds": 5000.0,
        "node": None,
        "reason": "QosAtRisk",
        "message": "0/40 nodes are available",
        "refused": REFUSED,
        "forecast": Forecast(0.83, 90.0, 200.0, "f" * 64, "heuristic"),
        "attempts": 3,
        "demotions": 1,
        "queue_position": 2,
        "retry_at_seconds": 5004.0,
        "predicted_start_seconds": 5060.0,
    }
    return encode(Decision(**{**values, **more}))


def pod(text: str | None = None, **more: Any) -> dict[str, Any]:
    """A pod that waits; ``text`` is the decision that its annotation tells."""
    spec, status = more.pop("spec", {}), {"phase": "Pending", **more.pop("status", {})}
    metadata = {
        "namespace": "shop",
        "uid": "u0",
        "annotations": {DECISION_ANNOTATION: text} if text else {},
        "labels": more.pop("labels", {}),
        "creationTimestamp": "2026-11-20T13:00:00Z",
        "ownerReferences": more.pop("owners", []),
    }
    return our_pod_manifest("count-0", spec=spec, status=status, **metadata)


JOB = {
    "kind": "Job",
    "metadata": {"name": "count", "namespace": "shop", "uid": "j"},
    "spec": {"class": "gratis", "type": "wordcount", "inputSize": "4Gi", "completions": 2, "parallelism": 1},
    "status": {
        "phase": "Queued",
        "queuePosition": 2,
        "attempts": 3,
        "demotions": 1,
        "evictions": 0,
        "failures": 0,
        "predictedStart": "2026-11-20T13:06:00Z",
        "predictedFinish": "2026-11-20T13:09:00Z",
        "predictedSeconds": {"p50": 90.0, "p90": 200.0},
        "conditions": [
            {
                "type": "Scheduled",
                "status": "False",
                "reason": "QosAtRisk",
                "message": "0/40 nodes are available",
                "lastTransitionTime": "2026-11-20T13:01:00Z",
            }
        ],
    },
}


def facts(explanation: Explanation) -> dict[str, str]:
    return dict(explanation.facts)


def test_a_waiting_pod_is_explained_from_its_note() -> None:
    answer = explain_pod(pod(note()), ClassContext(owner=JOB), NOW)
    said = facts(answer)
    assert said["Class"] == "gratis, by its Job count"
    assert said["State"] == "Pending, waits for a node since 2026-11-20T13:00:00Z (5m)"
    assert said["Why it waits"] == "QosAtRisk: 0/40 nodes are available"
    assert said["So far"] == "3 attempts, 1 demotion"
    assert said["Queue position"] == "2"
    assert said["Retry"] == "4s after that decision"
    assert said["Predicted start"] == "1m after that decision"
    assert said["Predicted finish"] == "2026-11-20T13:09:00Z (in 4m), its Job"
    assert said["Predicted run time"] == "1m 30s, nine times in ten below 3m 20s"
    assert said["QoS risk"].startswith("0.83 ")
    assert said["Models"] == "QoS ffffffffffff, completion heuristic"
    assert [(refusal.nodes, refusal.probability) for refusal in answer.refusals] == [(25, 0.83), (15, None)]
    assert answer.data["decision"]["refused"][0]["example"] == "fake-1"


@pytest.mark.parametrize(
    ("outside", "samples", "what", "words"),
    [
        ((), 312, "QoS evidence", "inside the learned range, from 312 samples of the service"),
        (
            ("rate", "limit"),
            1,
            "OutsideTraining",
            "outside the range learned by rate, limit (from 1 sample of the service)",
        ),
        (("rate unknown",), 312, "RateUnknown", "the larger of model and heuristic counts"),
        (("rate unknown",), None, "RateUnknown", "rate unknown; the heuristic knows requests only"),
    ],
)
def test_what_a_risk_rests_on_is_explained(
    outside: tuple[str, ...], samples: int | None, what: str, words: str
) -> None:
    risk = Forecast(0.83, qos_model="f" * 64, qos_outside=outside, qos_evidence=samples)
    answer = explain_pod(pod(note(forecast=risk)), ClassContext(owner=JOB), NOW)
    assert words in facts(answer)[what]
    assert answer.data["decision"]["qosOutside"] == list(outside)
    assert answer.data["decision"]["qosSamples"] == samples


def test_a_services_pod_tells_what_its_workload_lacks() -> None:
    conditions = [
        {"type": "RateUnknown", "status": "True", "message": "nobody measures its request rate"},
        {"type": "OutsideTraining", "status": "False", "message": "inside"},
    ]
    owner = {"kind": "Workload", "metadata": {"name": "web", "namespace": "shop"}, "status": {"conditions": conditions}}
    said = facts(explain_pod(pod(note()), ClassContext(owner=owner), NOW))
    assert said["RateUnknown"] == "nobody measures its request rate, its Workload"
    assert "OutsideTraining" not in said


def test_a_note_that_was_written_before_the_queue_was_counted_is_completed_by_the_job() -> None:
    answer = explain_pod(pod(note(queue_position=None, predicted_start_seconds=None)), ClassContext(owner=JOB), NOW)
    assert facts(answer)["Queue position"] == "2, its Job"
    assert facts(answer)["Predicted start"] == "2026-11-20T13:06:00Z (in 1m), its Job"


def test_a_placed_pod_says_where_since_when_and_why() -> None:
    bound = note(node="fake-3", reason="Scheduled", message="qpsm: least loaded", queue_position=None)
    body = pod(bound, spec={"nodeName": "fake-3"}, status={"phase": "Running", "startTime": "2026-11-20T13:04:00Z"})
    said = facts(explain_pod(body, ClassContext(owner=JOB), NOW))
    assert said["State"] == "Running on fake-3 since 2026-11-20T13:04:00Z (1m)"
    assert said["Why here"] == "Scheduled: qpsm: least loaded"
    assert "Retry" not in said
    assert "Queue position" not in said


def test_a_pod_of_phases_says_which_one_it_is_in_and_which_it_waits_for() -> None:
    body = pod(note(), spec={"nodeName": "fake-3"}, status={"phase": "Running"})
    begun = {"cotide.dev/granted-phase": "read", "cotide.dev/phase-since": "2026-11-20T13:03:00.000000Z"}
    body["metadata"]["annotations"] |= {**begun, "cotide.dev/phase-ends": "2026-11-20T13:07:00.000000Z"}
    answer = explain_pod(body, ClassContext(owner=JOB), NOW)
    assert facts(answer)["Phase of work"] == "read, since 2m, 2m left"
    assert answer.data["phaseOfWork"]["ends"] == "2026-11-20T13:07:00.000000Z"
    body["metadata"]["annotations"]["cotide.dev/phase"] = "count"
    said = facts(explain_pod(body, ClassContext(owner=JOB), NOW + 200))["Phase of work"]
    assert said == "read, since 5m 20s, 1m 20s longer than expected; it requests count, and waits for that size"


@pytest.mark.parametrize(
    ("gang", "said"),
    [
        (None, None),
        ({}, "1 pod at once or none; where fewer start within 5m, they leave"),
        (
            {"minMember": 2, "timeoutSeconds": 30},
            "2 pods at once or none; where fewer start within 30s, they leave",
        ),
        ("odd", None),
    ],
)
def test_a_job_says_what_its_gang_asks_for(gang: Any, said: str | None) -> None:
    found = facts(explain_job({**JOB, "spec": {**JOB["spec"], "gang": gang}}, [], [], NOW))
    assert found.get("Gang") == said
    assert ("Not read" in found) == (gang == "odd")


def test_a_pod_behind_gates_says_which_and_not_that_nobody_decides() -> None:
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "a/b"}]
    said = facts(explain_pod(pod(spec={"schedulingGates": gates}), ClassContext(), NOW))
    assert said["Why it waits"] == "SchedulingGated: held back until kueue.x-k8s.io/admission, a/b is removed"
    assert "Decision" not in said


def test_a_pod_without_a_note_says_so_and_a_foreign_one_is_not_ours_to_explain() -> None:
    assert "none written yet" in facts(explain_pod(pod(), ClassContext(), NOW))["Decision"]
    foreign = facts(explain_pod(pod(spec={"schedulerName": "default-scheduler"}), ClassContext(), NOW))
    assert "Cotide does not place this pod" in foreign["Scheduler"]
    copied = facts(explain_pod(pod(note(uid="another pod")), ClassContext(), NOW))
    assert "none written yet" in copied["Decision"]
    assert "none written yet" in facts(explain_pod(pod("not ours"), ClassContext(), NOW))["Decision"]


def test_a_job_is_explained_with_its_pods_and_the_foremost_ones_refusals() -> None:
    second = pod(note(key="shop/count-1", uid="u1", queue_position=1, refused=REFUSED[:1]))
    second["metadata"] |= {"name": "count-1", "uid": "u1"}
    answer = explain_job(JOB, [pod(note()), second], [], NOW)
    said = facts(answer)
    assert said["Work"] == "wordcount, input 4Gi, 2 pods, 1 at a time, priority 100"
    assert said["Not scheduled"].startswith("QosAtRisk: 0/40 nodes are available since 2026-11-20T13:01:00Z")
    assert said["Predicted finish"] == "2026-11-20T13:09:00Z (in 4m)"
    assert said["So far"] == "3 attempts, 1 demotion, 0 evictions, 0 failures"
    assert len(answer.refusals) == 1  # those of count-1, which is tried next
    assert answer.pods == (
        ("count-0", "Pending", "-", "2", "QosAtRisk"),
        ("count-1", "Pending", "-", "1", "QosAtRisk"),
    )


def test_a_job_that_nobody_looked_at_says_so() -> None:
    bare = {"metadata": {"name": "new", "namespace": "shop", "uid": "j"}, "spec": {"template": {}}}
    assert "is the operator running?" in facts(explain_job(bare, [], [], NOW))["Phase"]


def event(name: str, reason: str, message: str, second: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{name}.{second}"},
        "involvedObject": {"name": name},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "count": 2,
        "lastTimestamp": f"2026-11-20T13:00:{second:02d}Z",
    }


def test_events_that_say_the_same_are_one_and_the_latest_are_kept() -> None:
    same = [event(f"count-{n}", "FailedScheduling", "0/40 nodes", n) for n in range(3)]
    many = [event("count-0", "Evicted", f"reason {n}", 10 + n) for n in range(EVENTS_SHOWN)]
    answer = explain_job(JOB, [], same, NOW).happenings
    assert [(one.object, one.count, one.last_seen[-4:]) for one in answer] == [("count-0 and 2 more", 6, ":02Z")]
    assert len(explain_job(JOB, [], [*same, *many], NOW).happenings) == EVENTS_SHOWN


def test_a_nominated_pod_names_its_node_and_who_makes_room() -> None:
    answer = "0/2 nodes are available: 2 Insufficient cpu. preemption: 2 gratis pods leave n1 for it"
    values = {"reason": "InsufficientSlack", "message": answer, "nominated_node": "n1"}
    explained = explain_pod(pod(note(**values, victims=("shop/a", "shop/b"))), ClassContext(), NOW)
    assert dict(explained.facts)["Nominated"] == "n1: shop/a, shop/b leave to make room"
    assert explained.data["decision"]["nominatedNode"] == "n1"
    assert explained.data["decision"]["victims"] == ["shop/a", "shop/b"]
    kept = explain_pod(pod(note(**values)), ClassContext(), NOW)
    assert dict(kept.facts)["Nominated"] == "n1 is reserved for it"
    assert "Nominated" not in dict(explain_pod(pod(note()), ClassContext(), NOW).facts)


def reclaiming(millicores: int, **more: Any) -> dict[str, Any]:
    amounts = {"cotide.dev/reclaimed-cpu": str(millicores), "cotide.dev/reclaimed-memory": str(2**30)}
    containers = [{"name": "c", "resources": {"limits": amounts, "requests": amounts}}]
    return pod(more.pop("text", None), spec={"containers": containers, **more.pop("spec", {})}, **more)


def publishing(**annotations: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "cotide.dev/reclaimed-cpu": "4000", "cotide.dev/reclaimed-memory": str(4 * 2**30)}
    trust = {"type": "cotide.dev/ForecastTrusted", "status": "True", "reason": "Calibrated", "message": "covers 99 %"}
    return {
        "metadata": {"name": "fake-9", "uid": "n", "annotations": annotations},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [trust]},
    }


def test_a_pod_that_asks_for_reclaimed_capacity_is_told_what_its_node_offers_and_has_given_away() -> None:
    waiting = reclaiming(1500, text=note())
    assert relevant_node(waiting) == "fake-9", "the example of the nodes that lacked slack"
    neighbours = [reclaiming(3000, status={"phase": "Running"}), reclaiming(500, status={"phase": "Succeeded"})]
    node = publishing(**{"cotide.dev/forecast": "online peak 3600m"})
    answer = explain_pod(waiting, ClassContext(node=node, neighbours=neighbours), NOW)
    said = facts(answer)
    assert said["Asks for"] == "1500m cpu and 1Gi memory of reclaimed capacity"
    assert said["Offered"] == "fake-9 offers 4000m cpu and 4Gi memory; its pods request 3000m cpu and 1Gi memory of it"
    assert said["Trust"] == "trusted (Calibrated): covers 99 %"
    assert said["Forecast"] == "online peak 3600m"
    assert answer.data["reclaimed"]["node"]["inUse"] == {"cpu": "3000m", "memory": "1Gi"}
    assert answer.data["reclaimed"]["node"]["forecastTrusted"] is True


def test_what_may_not_be_read_of_reclaimed_capacity_is_left_out() -> None:
    placed = reclaiming(1500, spec={"nodeName": "fake-9"})
    assert relevant_node(placed) == "fake-9"
    assert "Offered" not in facts(explain_pod(placed, ClassContext(), NOW))
    unseen = facts(explain_pod(placed, ClassContext(node=publishing()), NOW))
    assert unseen["Offered"] == "fake-9 offers 4000m cpu and 4Gi memory"
    plain = {"metadata": {"name": "fake-9"}, "status": {"allocatable": {"cpu": "8"}}}
    answer = facts(explain_pod(placed, ClassContext(node=plain, neighbours=[]), NOW))
    assert answer["Offered"].startswith("fake-9 offers no reclaimed capacity (yet)")
    ordinary = explain_pod(pod(note()), ClassContext(node=publishing(), neighbours=[]), NOW)
    assert "reclaimed" not in ordinary.data, "who asks for none is told nothing of it"


def claim(name: str = "data-pg-0", node: str | None = "n1", **spec: Any) -> dict[str, Any]:
    annotations = {"volume.kubernetes.io/selected-node": node} if node else {}
    selected = {"f:metadata": {"f:annotations": {"f:volume.kubernetes.io/selected-node": {}}}}
    managed = [{"manager": "cotide", "time": "2026-11-20T13:04:00Z", "fieldsV1": selected}]
    metadata = {"name": name, "namespace": "shop", "annotations": annotations, "managedFields": managed}
    return {"metadata": metadata, "spec": {"storageClassName": "standard", **spec}}


CLASSES = {"standard": {"metadata": {"name": "standard"}, "provisioner": "ebs.csi.aws.com"}}


def test_a_pod_that_waits_for_a_volume_names_its_node_the_claim_and_the_driver() -> None:
    """Nothing is written on the pod while it waits. The claim that is bound already is not named."""
    bound = claim("logs", volumeName="pv-1")
    bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
    context = ClassContext(claims=[claim(), bound], storage_classes=CLASSES)
    answer = explain_pod(pod(), context, NOW)
    said = facts(answer)
    assert said["Decided on"].startswith("n1; it is bound when its volumes are, for volumes.bindTimeoutSeconds of ")
    assert said["Waits for"] == (
        "a volume for claim data-pg-0, which driver ebs.csi.aws.com makes, since 2026-11-20T13:04:00Z (1m)"
    )
    assert "Decision" not in said
    assert [one["claim"] for one in answer.data["volumes"]] == ["data-pg-0"]
    assert answer.data["volumes"][0]["driver"] == "ebs.csi.aws.com"


def test_an_older_note_does_not_hide_that_a_pod_waits_for_a_volume() -> None:
    said = facts(explain_pod(pod(note()), ClassContext(claims=[claim()]), NOW))
    assert said["Waits for"] == "a volume for claim data-pg-0, since 2026-11-20T13:04:00Z (1m)"
    assert "Why it waits" not in said


@pytest.mark.parametrize("claims", [[], [claim(node=None)], [claim(volumeName="pv-1", node=None)]])
def test_a_pod_whose_claims_have_no_node_waits_for_no_volume(claims: list[dict[str, Any]]) -> None:
    said = facts(explain_pod(pod(), ClassContext(claims=claims), NOW))
    assert said["Decision"] == "none written yet; is the operator running?"


def test_the_claims_of_a_pod_are_those_it_names_and_those_of_its_ephemeral_volumes() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "c", "emptyDir": {}},
    ]
    assert claim_names_of(pod(spec={"volumes": volumes})) == ["data", "count-0-b"]
    assert claim_names_of(pod(spec={"volumes": volumes, "nodeName": "n1"})) == []

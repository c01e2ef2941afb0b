"""Objects that a tenant may write and that once stopped, slowed or misled everybody; one of each kind.

Read by `poison_run`. Each pill is a list of requests, in text as it goes over the wire, since some can't be made from
values at all. What is placed is placed on a node of its own, so that a place that is rightly taken changes nothing for
others. A request that the API server refuses is a pill that nobody swallows: that is as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from manifests import job_manifest, our_pod_manifest, workload_manifest

NAMESPACE: Final = "poison"
NODE: Final = "poison"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS: Final = f"/apis/cotide.dev/v1alpha1/namespaces/{NAMESPACE}/jobs"
WORKLOADS: Final = f"/apis/cotide.dev/v1alpha1/namespaces/{NAMESPACE}/workloads"
BUDGETS: Final = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
TOLERATION: Final = {"key": "pool", "operator": "Equal", "value": "poison", "effect": "NoSchedule"}
SELECTED: Final = {"matchLabels": {"app": "pill"}}

Object = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One request; a PATCH is a merge patch."""

    method: str
    path: str
    body: str


def _post(path: str, body: Object) -> Request:
    return Request("POST", path, json.dumps(body))


def _patch(path: str, body: Object) -> Request:
    return Request("PATCH", path, json.dumps(body))


def _pod(name: str = "pill", spec: Object | None = None, **metadata: Any) -> Object:
    """A pod that may only go where poison goes."""
    pooled = {"nodeSelector": {"pool": "poison"}, "tolerations": [TOLERATION], "containers": [_container()]}
    return our_pod_manifest(name, spec={**pooled, **(spec or {})}, **metadata)


def _container(name: str = "c", **requests: str) -> Object:
    limits = {key: value for key, value in requests.items() if "/" in key}  # extended resources must be equal
    return {"name": name, "image": "x", "resources": {"requests": {"cpu": "1m", **requests}, "limits": limits}}


def _annotated(**annotations: str) -> list[Request]:
    written = {f"cotide.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return [_post(PODS, _pod(annotations=written, labels={"cotide.dev/class": "batch"}))]


def _job(name: str = "pill", **spec: Any) -> Object:
    """A Job whose pods may only go where poison goes."""
    template = {"spec": {"nodeSelector": {"pool": "poison"}, "tolerations": [TOLERATION], "containers": [_container()]}}
    return job_manifest(name, **{"class": "batch", "template": template, **spec})


def _nest(depth: int) -> str:
    return "[" * depth + "]" * depth


def _template_depth(depth: int) -> list[Request]:
    text = json.dumps(_job()).replace('"containers"', f'"deep": {{"x": {_nest(depth)}}}, "containers"')
    return [Request("POST", JOBS, text)]


def _terms(count: int) -> Object:
    terms = [{"matchExpressions": [{"key": f"k{index}", "operator": "In", "values": ["v"]}]} for index in range(count)]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def _selector(count: int) -> Object:
    return {
        "matchExpressions": [{"key": f"k{index}", "operator": "In", "values": ["a", "b"]} for index in range(count)]
    }


def _of_nobody(count: int) -> list[Object]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": f"o{index}", "uid": f"{index}"} for index in range(count)]


PILLS: Final[dict[str, Callable[[], list[Request]]]] = {
    "a note of brackets": lambda: _annotated(decision='{"v":1,"uid":"u","x":' + "[" * 10_000),
    "a note of brackets on a pod of another scheduler": lambda: [
        _post(PODS, _pod(spec={"schedulerName": "other"}, annotations={"cotide.dev/decision": '{"x":' + "[" * 10_000}))
    ],
    "a note that is a number": lambda: _annotated(decision="1e999"),
    "an input size beyond int64": lambda: _annotated(input_size="1e30"),
    "an input size of 40,000 digits": lambda: _annotated(input_size="9" * 40_000),
    "an exponent of a million": lambda: _annotated(input_size="1e999999", requested_seconds="1e999999"),
    "requested seconds of 40,000 digits": lambda: _annotated(requested_seconds="9" * 40_000),
    "a priority of 5,000 digits": lambda: _annotated(job_priority="9" * 5_000),
    "a type of 200 kB": lambda: _annotated(type="t" * 200_000),
    "a Job of too much input": lambda: [_post(JOBS, _job(type="sort", inputSize="1e30"))],
    "two containers of 8 Ei": lambda: [
        _post(PODS, _pod(spec={"containers": [_container("a", memory="8Ei"), _container("b", memory="8Ei")]}))
    ],
    "cpu of int64's most": lambda: [_post(PODS, _pod(spec={"containers": [_container(cpu="9223372036854775807")]}))],
    "a node of int64's most": lambda: [
        _patch(
            f"/api/v1/nodes/{NODE}/status",
            {"status": {"allocatable": {"cpu": "9223372036854775807", "memory": "8Ei", "example.com/x": "9000P"}}},
        )
    ],
    "a template 2,000 deep": lambda: _template_depth(2_000),
    "a template 200 deep": lambda: _template_depth(200),
    "8,000 resources": lambda: [
        _post(PODS, _pod(spec={"containers": [_container(**{f"example.com/r{n}": "1" for n in range(8_000)})]}))
    ],
    "8,000 node selector terms": lambda: [_post(PODS, _pod(spec=_terms(8_000)))],
    "200 types": lambda: [
        _post(PODS, _pod(f"pill-{n}", annotations={"cotide.dev/type": f"t{n}"}, labels={"cotide.dev/class": "batch"}))
        for n in range(200)
    ],
    "a query of 100 kB": lambda: [
        _post(WORKLOADS, workload_manifest("pill", selector=SELECTED, qos={"rpsQuery": "a" * 100_000}))
    ],
    "a running pod that asks for 30,000 years": lambda: [
        _post(PODS, _pod(spec={"nodeName": NODE}, annotations={"cotide.dev/requested-seconds": "1e12"})),
        _patch(f"{PODS}/pill/status", {"status": {"phase": "Running", "startTime": "2020-01-01T00:00:00Z"}}),
    ],
    "a Job that becomes small": lambda: [
        _post(JOBS, _job(completions=1_000, parallelism=100)),
        _patch(f"{JOBS}/pill", {"spec": {"completions": 1, "parallelism": 1}}),
    ],
    "a Job that ended 10,000,000,000 times": lambda: [
        _post(JOBS, _job(completions=2)),
        _patch(f"{JOBS}/pill/status", {"status": {"completedIndexes": "0-9999999999", "succeeded": 1}}),
    ],
    "a Job with a status of nonsense": lambda: [
        _post(JOBS, _job(completions=2)),
        _patch(f"{JOBS}/pill/status", {"status": {"completedIndexes": "," * 50_000, "attempts": 10**18}}),
    ],
    "4,000 tolerations": lambda: [
        _post(PODS, _pod(spec={"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(4_000)]}))
    ],
    "3,000 host ports": lambda: [
        _post(
            PODS,
            _pod(spec={"containers": [{**_container(), "ports": [
                {"containerPort": n, "hostPort": n} for n in range(1, 3_001)
            ]}]}),
        )
    ],
    "2,000 scheduling gates": lambda: [
        _post(PODS, _pod(spec={"schedulingGates": [{"name": f"example.com/g{n}"} for n in range(2_000)]}))
    ],
    "500 containers": lambda: [_post(PODS, _pod(spec={"containers": [_container(f"c{n}") for n in range(500)]}))],
    "5,000 owners": lambda: [_post(PODS, _pod(ownerReferences=_of_nobody(5_000)))],
    "3,000 labels": lambda: [_post(PODS, _pod(labels={f"k{n}": "v" for n in range(3_000)}))],
    "a selector of 3,000 expressions": lambda: [_post(WORKLOADS, workload_manifest("pill", selector=_selector(3_000)))],
    "a selector with a label that can't be": lambda: [
        _post(WORKLOADS, workload_manifest("pill", selector={"matchLabels": {"app": "no\u0000where"}}))
    ],
    "a budget of 3,000 expressions": lambda: [
        _post(BUDGETS, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pill"},
                        "spec": {"minAvailable": "100%", "selector": _selector(3_000)}})
    ],
    "a deletion cost beyond all": lambda: [
        _post(PODS, _pod(annotations={"controller.kubernetes.io/pod-deletion-cost": "9" * 4_000}))
    ],
    "a pod of somebody else's Job": lambda: [
        _post(
            PODS,
            _pod(
                labels={"cotide.dev/job": "count"},
                finalizers=["cotide.dev/job-tracking"],
                annotations={"cotide.dev/completion-index": "-1"},
                ownerReferences=[
                    {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "n", "uid": "x", "controller": True}
                ],
            ),
        )
    ],
    "a class that is none": lambda: [_post(PODS, _pod(labels={"cotide.dev/class": "x" * 63}))],
}  # fmt: skip

"""Many legal objects of one tenant, which may cost that tenant alone; one maker for each kind that Cotide watches.

Read by `crowd_run`. A crowd is drawn: how many objects, how long their selectors are, and whether these match no pod
or every pod. What is placed is placed on the node of the crowd, so that a place that is rightly taken changes nothing
for others. A request that the API server refuses is left out: that kind is not served, or the object is not legal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from manifests import container, job_manifest, our_pod_manifest, workload_manifest
from poison_pills import NAMESPACE, NODE, TOLERATION

Object = dict[str, Any]
Request = tuple[str, Object]
"""Path of a collection, and the object to be made in it."""
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS: Final = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
OURS: Final = f"/apis/cotide.dev/v1alpha1/namespaces/{NAMESPACE}"
IN_NAMESPACE: Final = (
    f"{OURS}/jobs", f"{OURS}/workloads", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
    f"/api/v1/namespaces/{NAMESPACE}/services", f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets",
    f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets", f"/api/v1/namespaces/{NAMESPACE}/replicationcontrollers",
    f"/apis/storage.k8s.io/v1/namespaces/{NAMESPACE}/csistoragecapacities", PODS, CLAIMS,
)  # fmt: skip
"""Collections that a crowd fills in its namespace, owners before what they own."""
SIZES: Final = (50, 100, 200)
REQUIREMENTS: Final = (8, 60)
TERMS: Final = (4, 16)


@dataclass(frozen=True)
class Crowd:
    """What was drawn."""

    kind: str
    size: int
    requirements: int
    """Of each selector."""
    terms: int
    """Of each pod with rules; their selectors have 1,000 requirements together at most, which is the operator's own
    limit."""
    matches: bool
    """Whether selectors match every pod, or none."""

    @classmethod
    def of(cls, rng: Random, kind: str) -> Crowd:
        """Draw the size of a crowd."""
        terms = rng.choice(TERMS)
        requirements = min(rng.choice(REQUIREMENTS), 960 // terms)
        return cls(kind, rng.choice(SIZES), requirements, terms, rng.random() < 0.5)

    def requests(self) -> Iterator[Request]:
        """Yield the objects, some pods that live among them first."""
        for number in range(10):
            yield PODS, _pod(f"member{number}", labels={"app": "crowd", "member": str(number)})
        for number in range(self.size):
            yield from CROWDS[self.kind](self, number)

    def selector(self, number: int, part: int = 0) -> Object:
        """Return a selector that equals no other of the crowd."""
        own = f"{self.kind}-{number}-{part}"
        absent = [
            {"key": f"{own}-{index}" if index else own, "operator": "DoesNotExist"}
            for index in range(self.requirements)
        ]
        return {"matchExpressions": absent if self.matches else [*absent[1:], {"key": own, "operator": "Exists"}]}

    def pairs(self, number: int) -> dict[str, str]:
        """Return the same as pairs of key and value, of which pods of the crowd have one."""
        return {"app": "crowd"} if self.matches else {f"k{index}": str(number) for index in range(self.requirements)}


def _pod(name: str, spec: Object | None = None, **parts: Any) -> Object:
    """A pod that may only go where the crowd goes."""
    pooled = {"nodeSelector": {"pool": "poison"}, "tolerations": [TOLERATION], "containers": [container("1m", "1Mi")]}
    return our_pod_manifest(name, spec={**pooled, **(spec or {})}, **{"cls": "batch", **parts})


def _terms(crowd: Crowd, number: int) -> list[Object]:
    return [
        {
            "topologyKey": "kubernetes.io/hostname",
            "namespaceSelector": {},
            "labelSelector": crowd.selector(number, part),
        }
        for part in range(crowd.terms)
    ]


def _apart(crowd: Crowd, number: int) -> Iterator[Request]:
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _terms(crowd, number)}}
    yield PODS, _pod(f"c{number}", {"affinity": rules})


def _near(crowd: Crowd, number: int) -> Iterator[Request]:
    wishes = [{"weight": 1 + part, "podAffinityTerm": term} for part, term in enumerate(_terms(crowd, number))]
    rules = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}
    yield PODS, _pod(f"c{number}", {"affinity": rules})


def _spread(crowd: Crowd, number: int) -> Iterator[Request]:
    constraints = [
        {
            "topologyKey": "kubernetes.io/hostname",
            "maxSkew": 1 + part,
            "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway")[part % 2],
            "labelSelector": crowd.selector(number, part),
        }
        for part in range(2)
    ]
    yield PODS, _pod(f"c{number}", {"topologySpreadConstraints": constraints})


def _waiting(crowd: Crowd, number: int) -> Iterator[Request]:
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _terms(crowd, number)}}
    yield PODS, _pod(f"c{number}", {"affinity": rules, "nodeSelector": {"pool": "poison", "never": str(number)}})


def _gated(crowd: Crowd, number: int) -> Iterator[Request]:
    del crowd
    yield PODS, _pod(f"c{number}", {"schedulingGates": [{"name": "example.com/wait"}]})


def _plain(crowd: Crowd, number: int) -> Iterator[Request]:
    yield PODS, _pod(f"c{number}", labels={f"l{index}": str(number) for index in range(crowd.requirements)})


def _shared_claim(crowd: Crowd, number: int) -> Iterator[Request]:
    del crowd
    if not number:
        yield CLAIMS, _claim("shared")
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}
    yield PODS, _pod(f"c{number}", {"volumes": [volume]})


def _claims(crowd: Crowd, number: int) -> Iterator[Request]:
    claim = _claim(f"c{number}")
    claim["spec"]["selector"] = crowd.selector(number)
    yield CLAIMS, claim
    yield PODS, _pod(f"c{number}", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{number}"}}]})


def _claim(name: str) -> Object:
    resources = {"requests": {"storage": "1Gi"}}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteMany"], "resources": resources}}


def _workloads(crowd: Crowd, number: int) -> Iterator[Request]:
    yield f"{OURS}/workloads", workload_manifest(f"c{number}", selector=crowd.selector(number))


def _jobs(crowd: Crowd, number: int) -> Iterator[Request]:
    pooled = {"nodeSelector": {"pool": "poison"}, "tolerations": [TOLERATION], "containers": [container("1m")]}
    spec = {"class": "batch", "completions": 1 + number % 3, "template": {"spec": pooled}}
    if number < 30:  # each has pods, which their node can hold
        yield f"{OURS}/jobs", {**job_manifest(f"c{number}"), "spec": {**spec, "type": f"t{crowd.size}-{number}"}}


def _budgets(crowd: Crowd, number: int) -> Iterator[Request]:
    spec = {"maxUnavailable": number % 2, "selector": crowd.selector(number)}
    yield f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets", {**_named(number), "spec": spec}


def _services(crowd: Crowd, number: int) -> Iterator[Request]:
    spec = {"clusterIP": "None", "selector": crowd.pairs(number)}
    yield f"/api/v1/namespaces/{NAMESPACE}/services", {**_named(number), "spec": spec}


def _controllers(kind: str) -> Callable[[Crowd, int], Iterator[Request]]:
    def make(crowd: Crowd, number: int) -> Iterator[Request]:
        labels = {f"k{index}": str(number) for index in range(crowd.requirements)}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        old = kind == "replicationcontrollers"
        spec: Object = {"replicas": 0, "template": template, "selector": labels if old else {"matchLabels": labels}}
        if kind == "statefulsets":
            spec["serviceName"] = "none"
        group = "/api/v1" if old else "/apis/apps/v1"
        yield f"{group}/namespaces/{NAMESPACE}/{kind}", {**_named(number), "spec": spec}

    return make


def _capacities(crowd: Crowd, number: int) -> Iterator[Request]:
    body = {**_named(number), "storageClassName": f"s{number % 7}", "capacity": "1Gi"}
    path = f"/apis/storage.k8s.io/v1/namespaces/{NAMESPACE}/csistoragecapacities"
    yield path, {**body, "nodeTopology": crowd.selector(number)}


def _namespaces(crowd: Crowd, number: int) -> Iterator[Request]:
    labels = {f"l{index}": str(number) for index in range(crowd.requirements)}
    yield "/api/v1/namespaces", {"metadata": {"name": space_of(number), "labels": {**labels, "crowd": "yes"}}}


def _spread_over_namespaces(crowd: Crowd, number: int) -> Iterator[Request]:
    """A few objects of each kind in each of many namespaces, all of which come first."""
    if not number:
        for one in range(crowd.size):
            yield "/api/v1/namespaces", {"metadata": {"name": space_of(one)}}
    makers = (_apart, _waiting, _workloads, _claims, _budgets)
    few = (one for part, make in enumerate(makers) for one in make(crowd, number * len(makers) + part))
    for path, body in (*few, *_jobs(crowd, number % 30)):
        yield path.replace(f"/{NAMESPACE}/", f"/{space_of(number)}/"), body


def space_of(number: int) -> str:
    """Return the name of a further namespace of the crowd."""
    return f"crowd-{number}"


def _nodes(crowd: Crowd, number: int) -> Iterator[Request]:
    """Nodes that nobody may use, each with resources and labels of its own."""
    if number >= 40:
        return
    own = {f"example.com/n{number}r{index}": "5" for index in range(4 * crowd.requirements)}
    offered = {"cpu": "1", "memory": "1Gi", "pods": "10", **own}
    status = {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {f"n{number}l{index}": "v" for index in range(crowd.requirements)}
    spec = {"taints": [{"key": "pool", "value": "crowd", "effect": "NoSchedule"}]}
    metadata = {"name": f"{NODE}-{number}", "labels": {**labels, "crowd": "yes"}}
    yield "/api/v1/nodes", {"metadata": metadata, "spec": spec, "status": status}


def _named(number: int) -> Object:
    return {"metadata": {"name": f"c{number}"}}


CROWDS: Final[dict[str, Callable[[Crowd, int], Iterator[Request]]]] = {
    "pods-apart": _apart,
    "workloads": _workloads,
    "pods-near": _near,
    "pods-waiting": _waiting,
    "pods-spread": _spread,
    "services": _services,
    "budgets": _budgets,
    "jobs": _jobs,
    "shared-claim": _shared_claim,
    "claims": _claims,
    "pods-plain": _plain,
    "pods-gated": _gated,
    "replicasets": _controllers("replicasets"),
    "statefulsets": _controllers("statefulsets"),
    "replicationcontrollers": _controllers("replicationcontrollers"),
    "capacities": _capacities,
    "namespaces": _namespaces,
    "nodes": _nodes,
    "many-namespaces": _spread_over_namespaces,
}

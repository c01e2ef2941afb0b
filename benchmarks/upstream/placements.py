"""Whether pods stand where they may stand, and how evenly, worked out from the API's objects alone.

Used by `upstream_perf` after each workload. The rules are those of the scheduler's filters in Kubernetes; nothing of
the schedulers under test takes part.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
UNITS: Final = {
    **{unit: Fraction(2**power) for unit, power in BINARY.items()},
    **{unit: Fraction(10) ** power for unit, power in DECIMAL.items() if unit},
    "": Fraction(1),
}
"""Source: Kubernetes, ``apimachinery/pkg/api/resource``. Longer ones come first: the first that fits is meant."""
ZONE: Final = "topology.kubernetes.io/zone"
KEEPS_OUT: Final = ("NoSchedule", "NoExecute")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
Json = Mapping[str, Any]


def quantity(text: object) -> Fraction:
    """Return the amount that the API writes as text, such as ``100m``, ``500Mi`` and ``2``."""
    written = str(text)
    unit = next(one for one in UNITS if written.endswith(one))
    return Fraction(written.removesuffix(unit)) * UNITS[unit]


def matches(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector chooses labels; None chooses nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(one, labels.get(one["key"])) for one in selector.get("matchExpressions") or ())


def _holds(expression: Json, value: str | None) -> bool:
    operator: str = expression["operator"]
    values = expression.get("values") or ()
    if operator in ("Gt", "Lt"):
        return value is not None and (int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0]))
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[operator]


class Placements:
    """Pods on nodes.

    Parameters
    ----------
    pods, nodes, namespaces : objects of the API.
    """

    def __init__(self, pods: Sequence[Json], nodes: Sequence[Json], namespaces: Sequence[Json]) -> None:
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._namespaces = {
            namespace["metadata"]["name"]: namespace["metadata"].get("labels") or {} for namespace in namespaces
        }
        bound = [pod for pod in pods if pod["spec"].get("nodeName")]
        self._lost = [pod for pod in bound if pod["spec"]["nodeName"] not in self._nodes]
        self._pods = [pod for pod in bound if pod["spec"]["nodeName"] in self._nodes]

    def violations(self) -> dict[str, int]:
        """Return how often each rule is broken, without those that hold."""
        found = Counter({"node that does not exist": len(self._lost)})
        found["overcommitted"] = sum(self._overcommitted())
        found["host port"] = sum(number - 1 for number in self._host_ports().values())
        for pod in self._pods:
            node = self._nodes[pod["spec"]["nodeName"]]
            found["taint"] += not tolerates(pod, node)
            found["node affinity"] += not suits(pod, node)
            found["scheduling gate"] += bool(pod["spec"].get("schedulingGates"))
        found["affinity"], found["anti-affinity"] = self._pod_affinities()
        found["spread"] = sum(self._spreads())
        return {rule: number for rule, number in found.items() if number}

    def evenness(self, names: set[tuple[str, str]]) -> dict[str, int]:
        """Return how some pods, by namespace and name, lie: nodes used, most on one node, and the skew over zones."""
        chosen = [pod for pod in self._pods if _key(pod) in names]
        nodes = Counter(pod["spec"]["nodeName"] for pod in chosen)
        zones = {_labels(node)[ZONE]: 0 for node in self._nodes.values() if ZONE in _labels(node)}
        for pod in chosen:
            zone = self._domain(pod, ZONE)
            if zone is not None:
                zones[zone] += 1
        skew = max(zones.values()) - min(zones.values()) if zones else 0
        return {"nodes_used": len(nodes), "most_on_one_node": max(nodes.values(), default=0), "zone_skew": skew}

    def _overcommitted(self) -> Iterator[bool]:
        used: dict[str, defaultdict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        for pod in self._pods:
            node = used[pod["spec"]["nodeName"]]
            node["pods"] += 1
            for container in pod["spec"]["containers"]:
                for resource, amount in ((container.get("resources") or {}).get("requests") or {}).items():
                    node[resource] += quantity(amount)
        for name, amounts in used.items():
            status = self._nodes[name]["status"]
            room = status.get("allocatable") or status["capacity"]
            yield any(amount > quantity(room.get(resource, 0)) for resource, amount in amounts.items())

    def _host_ports(self) -> Counter[tuple[str, str, int]]:
        return Counter(
            (pod["spec"]["nodeName"], port.get("protocol", "TCP"), port["hostPort"])
            for pod in self._pods
            for container in pod["spec"]["containers"]
            for port in container.get("ports") or ()
            if port.get("hostPort")
        )

    def _domain(self, pod: Json, key: str) -> str | None:
        return _labels(self._nodes[pod["spec"]["nodeName"]]).get(key)

    def _pod_affinities(self) -> tuple[int, int]:
        """Return how many pods lack what they want to be with, and how many are with what they avoid."""
        known: dict[str, Counter[str | None]] = {}
        lacking, together = 0, 0
        for pod in self._pods:
            affinity = pod["spec"].get("affinity") or {}
            for kind in ("podAffinity", "podAntiAffinity"):
                for term in (affinity.get(kind) or {}).get(REQUIRED) or ():
                    named = json.dumps([term, pod["metadata"]["namespace"]], sort_keys=True)
                    if named not in known:
                        known[named] = self._counted(term, pod)
                    counted, itself = known[named], self._chooses(term, pod, pod)
                    beside = counted[self._domain(pod, term["topologyKey"])] - itself
                    if kind == "podAffinity":
                        # The first pod of a group that chooses itself may stand anywhere.
                        lacking += beside <= 0 < counted.total() - itself
                    else:
                        together += beside > 0 and self._domain(pod, term["topologyKey"]) is not None
        return lacking, together

    def _counted(self, term: Json, pod: Json) -> Counter[str | None]:
        return Counter(
            self._domain(other, term["topologyKey"]) for other in self._pods if self._chooses(term, pod, other)
        )

    def _chooses(self, term: Json, pod: Json, other: Json) -> bool:
        """Whether an affinity term of a pod chooses another one."""
        space, selector = other["metadata"]["namespace"], term.get("namespaceSelector")
        if term.get("namespaces") or selector is not None:
            meant = space in (term.get("namespaces") or ()) or matches(selector, self._namespaces.get(space, {}))
        else:
            meant = space == pod["metadata"]["namespace"]
        return meant and matches(term.get("labelSelector"), _labels(other))

    def _spreads(self) -> Iterator[bool]:
        """Yield for each spread constraint that must hold whether it is broken."""
        seen = set()
        for pod in self._pods:
            for constraint in pod["spec"].get("topologySpreadConstraints") or ():
                named = json.dumps([constraint, pod["metadata"]["namespace"]], sort_keys=True)
                if constraint["whenUnsatisfiable"] == "DoNotSchedule" and named not in seen:
                    seen.add(named)
                    yield self._skew(constraint, pod) > constraint["maxSkew"]

    def _skew(self, constraint: Json, pod: Json) -> int:
        key = constraint["topologyKey"]
        domains = {
            _labels(node)[key]: 0
            for node in self._nodes.values()
            if key in _labels(node)
            and (constraint.get("nodeAffinityPolicy") == "Ignore" or suits(pod, node))
            and (constraint.get("nodeTaintsPolicy") != "Honor" or tolerates(pod, node))
        }
        for other in self._pods:
            same = other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            domain = self._domain(other, key)
            if same and domain in domains and matches(constraint.get("labelSelector"), _labels(other)):
                domains[domain] += 1
        return max(domains.values(), default=0) - min(domains.values(), default=0)


def tolerates(pod: Json, node: Json) -> bool:
    """Whether a pod tolerates all taints of a node that keep pods out, a cordon included."""
    taints = [one for one in node["spec"].get("taints") or () if one["effect"] in KEEPS_OUT]
    if node["spec"].get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    return all(any(_covers(one, taint) for one in pod["spec"].get("tolerations") or ()) for taint in taints)


def _covers(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") in (None, ""):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def suits(pod: Json, node: Json) -> bool:
    """Whether a node has what a pod's node selector and required node affinity ask for."""
    labels, name = _labels(node), node["metadata"]["name"]
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    if required is None:
        return True
    return any(
        bool(term.get("matchExpressions") or term.get("matchFields"))
        and matches({"matchExpressions": term.get("matchExpressions")}, labels)
        and all(_holds(one, name) for one in term.get("matchFields") or ())
        for term in required["nodeSelectorTerms"]
    )


def _labels(one: Json) -> Mapping[str, str]:
    return one["metadata"].get("labels") or {}


def _key(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]

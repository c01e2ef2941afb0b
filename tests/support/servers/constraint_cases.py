"""Random clusters and pods with rules about other pods, drawn from a seed; JSON as a user would send it."""

from __future__ import annotations

from random import Random
from typing import Any, Final

Json = dict[str, Any]
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
RACK: Final = "example.com/rack"
KEYS: Final = (ZONE, HOST, RACK)
NAMESPACES: Final = {"red": {"team": "red", "tier": "one"}, "blue": {"team": "blue"}, "plain": {}}
APPS: Final = ("web", "db", "cache")
REFERENCE: Final = "reference"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def nodes(draw: Random) -> list[Json]:
    """Four to ten nodes, some without a label, some tainted or cordoned."""
    return [_machine(draw, f"n{number}") for number in range(draw.randint(4, 10))]


def _machine(draw: Random, name: str) -> Json:
    labels = {HOST: name}
    if draw.random() < 0.85:
        labels[ZONE] = draw.choice("abc")
    if draw.random() < 0.7:
        labels[RACK] = draw.choice("xy")
    labels["disk"] = draw.choice(("ssd", "hdd"))
    spec: Json = {}
    if draw.random() < 0.2:
        effect = draw.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
        spec["taints"] = [{"key": "dedicated", "value": draw.choice(("gpu", "db")), "effect": effect}]
    if draw.random() < 0.07:
        spec["unschedulable"] = True
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    status = {
        "allocatable": amounts,
        "capacity": amounts,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def placed(draw: Random, names: list[str]) -> list[Json]:
    """Up to thirty pods on these nodes; a quarter keeps others off, a tenth is to be deleted (``doomed``)."""
    pods = []
    for number in range(draw.randint(0, 30)):
        labels = _labels(draw)
        spec: Json = {"nodeName": draw.choice(names)}
        if draw.random() < 0.25:
            spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [_term(draw, labels, "anything", placed=True)]}}
        pod = _body(draw, f"placed-{number}", labels, spec)
        pod["doomed"] = draw.random() < 0.1
        pods.append(pod)
    return pods


def probes(draw: Random, kind: str, count: int) -> list[Json]:
    """So many pods to be placed, each with rules of one kind."""
    return [_probe(draw, kind, f"{kind.replace('_', '-')}-{number}") for number in range(count)]


def _probe(draw: Random, kind: str, name: str) -> Json:
    labels = _labels(draw)
    spec: Json = {"schedulerName": REFERENCE}
    RULES[kind](draw, labels, spec)
    if draw.random() < 0.2:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    return _body(draw, name, labels, spec)


def _body(draw: Random, name: str, labels: dict[str, str], spec: Json) -> Json:
    metadata = {"name": name, "namespace": draw.choice(list(NAMESPACES)), "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "none"}], **spec}}


def _labels(draw: Random) -> dict[str, str]:
    labels = {"app": draw.choice(APPS)}
    if draw.random() < 0.7:
        labels["track"] = draw.choice(("stable", "canary"))
    if draw.random() < 0.5:
        labels["version"] = draw.choice(("1", "2"))
    return labels


def _selector(draw: Random, labels: dict[str, str], *, apps_only: bool = False) -> Json | None:
    """A selector that often selects the pod itself; without ``track`` and ``version`` where others name them."""
    drawn = draw.random()
    if drawn < 0.08:
        return {}
    if drawn < 0.12 and not apps_only:
        return None
    app = labels["app"] if draw.random() < 0.6 else draw.choice(APPS)
    if drawn < 0.55:
        return {"matchLabels": {"app": app}}
    key = "app" if apps_only else draw.choice(("app", "track", "version", "missing"))
    operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    expression: Json = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        values = {"app": APPS, "track": ("stable", "canary"), "version": ("1", "2"), "missing": ("x", "y")}[key]
        expression["values"] = draw.sample(values, draw.randint(1, len(values)))
    selector: Json = {"matchExpressions": [expression]}
    if draw.random() < 0.3 and key != "app":
        selector["matchLabels"] = {"app": app}
    return selector


def _term(draw: Random, labels: dict[str, str], kind: str, *, placed: bool = False) -> Json:
    named = kind == "label_keys" or (kind == "anything" and draw.random() < 0.2)
    term: Json = {"topologyKey": draw.choice(KEYS)}
    selector = _selector(draw, labels, apps_only=named)
    if selector is not None:
        term["labelSelector"] = selector
    if named:
        first, second = draw.sample(("track", "version"), 2)
        term["matchLabelKeys" if draw.random() < 0.6 else "mismatchLabelKeys"] = [first]
        if draw.random() < 0.3:
            term["mismatchLabelKeys"] = [second]
    if kind == "namespaces" or (kind == "anything" and draw.random() < 0.3):
        if draw.random() < 0.5:
            term["namespaces"] = draw.sample(list(NAMESPACES), draw.randint(1, 2))
        drawn = draw.random()
        if drawn < 0.2:
            term["namespaceSelector"] = {}
        elif drawn < 0.7:
            choices: list[Json] = [
                {"matchLabels": {"team": draw.choice(("red", "blue"))}},
                {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            ]
            # kube-scheduler 1.35 takes these in a waiting pod's own terms for every namespace: its plugin exchanges the
            # selector in a copy, and then matches it with no labels. In those of placed pods it does as documented.
            if kind == "anything" and placed:
                choices += [
                    {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
                    {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]},
                ]
            term["namespaceSelector"] = draw.choice(choices)
    return term


def _affinity(draw: Random, labels: dict[str, str], spec: Json) -> None:
    terms = [_term(draw, labels, "plain") for _ in range(draw.randint(1, 3))]
    spec["affinity"] = {"podAffinity": {_REQUIRED: terms}}


def _first_of_group(draw: Random, labels: dict[str, str], spec: Json) -> None:
    labels["group"] = draw.choice(("new", "old"))
    selector = {"matchLabels": {"group": draw.choice(("new", labels["group"]))}}
    terms = [{"topologyKey": draw.choice(KEYS), "labelSelector": selector} for _ in range(draw.randint(1, 2))]
    spec["affinity"] = {"podAffinity": {_REQUIRED: terms}}


def _anti_affinity(draw: Random, labels: dict[str, str], spec: Json) -> None:
    terms = [_term(draw, labels, "plain") for _ in range(draw.randint(1, 3))]
    spec["affinity"] = {"podAntiAffinity": {_REQUIRED: terms}}


def _symmetry(draw: Random, labels: dict[str, str], spec: Json) -> None:
    """Nothing of its own: who is placed keeps it off, or doesn't."""


def _both(kind: str) -> Any:
    def rules(draw: Random, labels: dict[str, str], spec: Json) -> None:
        spec["affinity"] = {draw.choice(("podAffinity", "podAntiAffinity")): {_REQUIRED: [_term(draw, labels, kind)]}}

    return rules


def _spreads(draw: Random, labels: dict[str, str], *, named: bool = False, policies: bool = False) -> list[Json]:
    spreads = []
    for key in draw.sample(KEYS, draw.randint(1, 2)):
        spread: Json = {"topologyKey": key, "maxSkew": draw.randint(1, 3), "whenUnsatisfiable": "DoNotSchedule"}
        selector = _selector(draw, labels, apps_only=named)
        if selector is not None:
            spread["labelSelector"] = selector
        if named:
            spread["matchLabelKeys"] = draw.sample(("track", "version"), draw.randint(1, 2))
        if policies:
            spread["nodeAffinityPolicy"] = draw.choice(("Honor", "Ignore"))
            spread["nodeTaintsPolicy"] = draw.choice(("Honor", "Ignore"))
            if draw.random() < 0.6:
                spread["minDomains"] = draw.randint(1, 4)
        spreads.append(spread)
    return spreads


def _spread(draw: Random, labels: dict[str, str], spec: Json) -> None:
    spec["topologySpreadConstraints"] = _spreads(draw, labels)


def _spread_policies(draw: Random, labels: dict[str, str], spec: Json) -> None:
    spec["topologySpreadConstraints"] = _spreads(draw, labels, policies=True)
    if draw.random() < 0.6:
        spec["nodeSelector"] = {"disk": draw.choice(("ssd", "hdd"))}


def _spread_label_keys(draw: Random, labels: dict[str, str], spec: Json) -> None:
    spec["topologySpreadConstraints"] = _spreads(draw, labels, named=True)


def _mixed(draw: Random, labels: dict[str, str], spec: Json) -> None:
    spec["affinity"] = {
        side: {_REQUIRED: [_term(draw, labels, "anything")]}
        for side in ("podAffinity", "podAntiAffinity")
        if draw.random() < 0.6
    }
    if draw.random() < 0.6:
        spec["topologySpreadConstraints"] = _spreads(draw, labels, policies=True)


RULES: Final = {
    "affinity": _affinity,
    "first_of_group": _first_of_group,
    "anti_affinity": _anti_affinity,
    "symmetry": _symmetry,
    "namespaces": _both("namespaces"),
    "label_keys": _both("label_keys"),
    "spread": _spread,
    "spread_policies": _spread_policies,
    "spread_label_keys": _spread_label_keys,
    "mixed": _mixed,
}

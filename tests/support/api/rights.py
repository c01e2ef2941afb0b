"""Rights: those that deploy/ grants to the operator, and those that the server's audit log says it used.

Called by the tests of this folder that hold one against the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import yaml
from real_cluster import DEPLOY, RealCluster

Right = tuple[str, str, str, str]
"""API group, resource with subresource, verb, and the name that it is limited to, empty for none."""

EVERYBODY: Final = ("selfsubject",)
"""How the questions about oneself begin that every user may ask."""


def rules(document: dict[str, Any]) -> Iterator[Right]:
    for rule in document.get("rules") or ():
        for group in rule.get("apiGroups") or ():
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or [""]:
                        yield group, resource, verb, name


def granted(*, everywhere: bool = False) -> set[Right]:
    """What deploy/ grants to the operator's ServiceAccount, in its own namespace or in any."""
    files = [
        DEPLOY / "rbac" / "operator.yaml",
        DEPLOY / "rbac" / "leader-election.yaml",
        DEPLOY / "rbac" / "learned.yaml",
        DEPLOY / "admission" / "rbac.yaml",
    ]
    return {
        right
        for file in files
        for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        for right in rules(one)
        if not (everywhere and one["kind"] == "Role")
    }


def asked(cluster: RealCluster) -> Iterator[tuple[Right, bool, str]]:
    """Yield each right that the operator needed so far, whether it had it, and for what."""
    for line in cluster.plane.audit_log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        about, agent = entry.get("objectRef"), entry.get("userAgent", "")
        if about is None or about["resource"].startswith(EVERYBODY):
            continue
        resource = about["resource"] + (f"/{about['subresource']}" if about.get("subresource") else "")
        decision = entry.get("annotations", {}).get("authorization.k8s.io/decision")
        right = about.get("apiGroup", ""), resource, entry["verb"], about.get("name", "")
        yield right, decision == "allow", f"{agent} {entry['requestURI']}"


class Used:
    """The rights that operators use from now on."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._before = len(list(asked(cluster)))
        self._named = {(group, resource, verb) for group, resource, verb, name in granted() if name}

    def rights(self) -> set[Right]:
        """What was asked for, in the words of deploy/: a name only where the grant has one."""
        return {
            (group, resource, verb, name if (group, resource, verb) in self._named else "")
            for (group, resource, verb, name), _, _ in list(asked(self._cluster))[self._before :]
        }

    def missed(self) -> set[tuple[Right, str]]:
        """What was asked for and refused, and for what."""
        return {(right, why) for right, allowed, why in list(asked(self._cluster))[self._before :] if not allowed}

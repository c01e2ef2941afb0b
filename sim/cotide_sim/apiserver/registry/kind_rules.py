"""The defaults and checks of a kind beyond its metadata.

Called by `writing` for every create and change. A kind without rules of its own is stored unchanged; a custom kind
follows its schema. Invariant: `default` runs before `check`, and both see the stored form's apiVersion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cotide_sim.apiserver.admission import webhook_kinds
from cotide_sim.apiserver.cluster import Write
from cotide_sim.apiserver.refusals import Cause
from cotide_sim.apiserver.registry import custom_kinds, plain_kinds, pod_rules
from cotide_sim.apiserver.registry.resources import Resource

Default = Callable[[Write], None]
Check = Callable[[Write], list[Cause]]


@dataclass(frozen=True, slots=True)
class Rules:
    """The defaults of a kind, set in place, and its checks."""

    default: Default
    check: Check


_RULES: Final[dict[str, Rules]] = {
    "pods": Rules(pod_rules.default, pod_rules.check),
    "namespaces": Rules(plain_kinds.default_namespace, plain_kinds.check_nothing),
    "priorityclasses.scheduling.k8s.io": Rules(plain_kinds.default_priority_class, plain_kinds.check_priority_class),
    "poddisruptionbudgets.policy": Rules(plain_kinds.default_fresh, plain_kinds.check_budget),
    "leases.coordination.k8s.io": Rules(plain_kinds.default_nothing, plain_kinds.check_lease),
    "resourcequotas": Rules(plain_kinds.default_fresh, plain_kinds.check_quota),
    "services": Rules(plain_kinds.default_service, plain_kinds.check_service),
    "secrets": Rules(plain_kinds.default_secret, plain_kinds.check_nothing),
    "nodes": Rules(plain_kinds.default_node, plain_kinds.check_node),
    "persistentvolumeclaims": Rules(plain_kinds.default_nothing, plain_kinds.check_nothing),
    "customresourcedefinitions.apiextensions.k8s.io": Rules(
        custom_kinds.default_definition, custom_kinds.check_definition
    ),
    **dict.fromkeys(
        (
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
        ),
        Rules(webhook_kinds.default_webhooks, webhook_kinds.check_webhooks),
    ),
}
_STORED: Final = Rules(plain_kinds.default_fresh, plain_kinds.check_nothing)
_CUSTOM: Final = Rules(custom_kinds.default_object, custom_kinds.check_object)


def rules_for(resource: Resource) -> Rules:
    """Return a kind's rules."""
    return _CUSTOM if resource.custom else _RULES.get(resource.key, _STORED)

"""A webhook as its configuration describes it, and the writes that it selects.

Made by `admission` from each stored configuration; read by it for every write while one exists. Pure.

Source of the rules: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cotide_sim.apiserver.registry.resources import Json, Resource
from cotide_sim.apiserver.storage.selectors import Requirement, label_selector_of

_EXEMPT = frozenset({"mutatingwebhookconfigurations", "validatingwebhookconfigurations"})
"""Never shown to a webhook, so that a broken one can always be removed."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A pending operation on an object."""

    verb: str
    """CREATE, UPDATE or DELETE."""
    resource: Resource
    version: str
    subresource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One of a webhook's rules."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    """Plural and subresource of each entry; ``*`` matches any."""
    scope: str

    def covers(self, what: Operation, version: str) -> bool:
        """Return whether the rule covers an operation, seen as one version of its kind."""
        resource = what.resource
        if not (self.operations & {"*", what.verb} and self.groups & {"*", resource.group}):
            return False
        if not self.versions & {"*", version}:
            return False
        # A namespace counts as an object of the cluster.
        in_namespace = resource.namespaced
        if self.scope != "*" and (self.scope == "Namespaced") is not in_namespace:
            return False
        return any(
            plural in ("*", resource.plural) and sub in ("*", what.subresource) for plural, sub in self.resources
        )


@dataclass(frozen=True, slots=True)
class Service:
    """The service in front of a webhook."""

    namespace: str
    name: str
    path: str
    port: int


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of a configuration."""

    configuration: str
    name: str
    rules: tuple[Rule, ...]
    exact: bool
    spaces: Sequence[Requirement]
    objects: Sequence[Requirement]
    ignores_failures: bool
    timeout_seconds: int
    reinvoked: bool
    url: str
    service: Service | None
    authority_pem: bytes
    """The authority of its certificate; empty: the authorities that this machine trusts."""

    def version_for(self, what: Operation) -> str | None:
        """Return the version in which it receives an operation's object; None when it does not select the operation."""
        if what.resource.plural in _EXEMPT:
            return None
        others = (
            ()
            if self.exact
            else tuple(
                served_version.name for served_version in what.resource.versions if served_version.name != what.version
            )
        )
        for version in (what.version, *others):
            if any(rule.covers(what, version) for rule in self.rules):
                return version
        return None

    def selects(self, space_labels: Mapping[str, str] | None, objects: Sequence[Json | None]) -> bool:
        """Return whether its selectors pick a namespace (None: the object has none) and the new or the old object."""
        if space_labels is not None and not all(holds(space_labels) for holds in self.spaces):
            return False
        if not self.objects:
            return True
        return any(_all_hold(self.objects, obj) for obj in objects if obj is not None)


def _all_hold(requirements: Sequence[Requirement], obj: Json) -> bool:
    labels = (obj.get("metadata") or {}).get("labels") or {}
    return all(holds(labels) for holds in requirements)


def webhooks_of(configuration: Json) -> Iterator[Webhook]:
    """Yield the webhooks of a stored configuration."""
    for hook in configuration.get("webhooks") or ():
        client = hook["clientConfig"]
        service = client.get("service")
        yield Webhook(
            configuration=configuration["metadata"]["name"],
            name=hook["name"],
            rules=tuple(_rule(rule) for rule in hook.get("rules") or ()),
            exact=hook["matchPolicy"] == "Exact",
            spaces=label_selector_of(hook["namespaceSelector"]) or (),
            objects=label_selector_of(hook["objectSelector"]) or (),
            ignores_failures=hook["failurePolicy"] == "Ignore",
            timeout_seconds=hook["timeoutSeconds"],
            reinvoked=hook.get("reinvocationPolicy") == "IfNeeded",
            url=client.get("url") or "",
            service=_service(service) if service else None,
            authority_pem=_decoded(client.get("caBundle") or ""),
        )


def _rule(rule: Json) -> Rule:
    pairs = (resource.partition("/")[::2] for resource in rule["resources"])
    return Rule(
        frozenset(rule["operations"]),
        frozenset(rule["apiGroups"]),
        frozenset(rule["apiVersions"]),
        tuple((plural, sub) for plural, sub in pairs),
        rule["scope"],
    )


def _service(service: Json) -> Service:
    return Service(service["namespace"], service["name"], service.get("path") or "/", service["port"])


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle, validate=True)
    except binascii.Error:
        return b"not base64"  # a bundle that cannot be read fails the call, as on a real server

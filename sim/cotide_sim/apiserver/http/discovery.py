"""Discovery: the served groups, versions and kinds; plain and aggregated.

Called by `fixed_paths`. Documents are made again only after a change of the registry.
"""

from __future__ import annotations

from typing import Any, Final

from cotide_sim.apiserver.registry.resources import Json, Registry, Resource

_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCES: Final[dict[str, tuple[str, str, str, list[str]]]] = {
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "scale": ("autoscaling", "v1", "Scale", ["get", "patch", "update"]),
    "finalize": ("", "v1", "Namespace", ["update"]),
}
REVIEWS: Final = {
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    "subjectaccessreviews": "SubjectAccessReview",
}
"""Kinds of authorization.k8s.io that are answered but never stored."""
TOKEN_REVIEWS: Final = {"tokenreviews": "TokenReview"}
"""The same for authentication.k8s.io."""
_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"


def _sort_key(group: str) -> tuple[bool, str]:
    # Custom groups come last, as in a real server's priorities.
    return (group not in ("apps", "batch", "policy", "autoscaling") and not group.endswith(".k8s.io"), group)


def _subresource(resource: Resource, name: str) -> tuple[str, str, str, list[str]]:
    return _SUBRESOURCES.get(name, ("", "", resource.kind, ["get", "patch", "update"]))


class Discovery:
    """Makes discovery documents from the registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def groups(self) -> dict[str, list[str]]:
        """Return the named groups with their versions."""
        groups = {group: versions for group, versions in self._registry.groups().items() if group}
        groups[_AUTHENTICATION] = groups[_AUTHORIZATION] = ["v1"]
        return dict(sorted(groups.items(), key=lambda item: _sort_key(item[0])))

    def legacy_versions(self) -> Json:
        """Return `/api`."""
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}

    def group(self, name: str) -> Json | None:
        """Return `/apis/<group>`, or None."""
        versions = self.groups().get(name)
        if versions is None:
            return None
        listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
        return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": listed, "preferredVersion": listed[0]}

    def group_list(self) -> Json:
        """Return `/apis`."""
        groups = []
        for name in self.groups():
            group = self.group(name)
            if group is not None:
                groups.append({key: value for key, value in group.items() if key not in ("kind", "apiVersion")})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def resource_list(self, group: str, version: str) -> Json | None:
        """Return `/api/v1` or `/apis/<group>/<version>`, or None."""
        listed: list[Json] = []
        for resource in self._registry:
            served = resource.served(version)
            if resource.group != group or served is None:
                continue
            entry: Json = {
                "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": _VERBS,
            }  # fmt: skip
            if resource.short_names:
                entry["shortNames"] = list(resource.short_names)
            if resource.categories:
                entry["categories"] = list(resource.categories)
            listed.append(entry)
            for name in sorted(resource.subresources):
                of_group, of_version, kind, verbs = _subresource(resource, name)
                one: Json = {"name": f"{resource.plural}/{name}", "singularName": "",
                             "namespaced": resource.namespaced, "kind": kind, "verbs": verbs}  # fmt: skip
                if of_version and (of_group, of_version) != (group, version):
                    one |= {"group": of_group, "version": of_version}
                listed.append(one)
        if group in (_AUTHORIZATION, _AUTHENTICATION) and version == "v1":
            reviews = REVIEWS if group == _AUTHORIZATION else TOKEN_REVIEWS
            listed = [
                {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
                for plural, kind in reviews.items()
            ]
        if not listed:
            return None
        group_version = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}

    def aggregated(self, *, core: bool) -> Json:
        """Return the aggregated document (apidiscovery.k8s.io/v2) of `/api` or `/apis`."""
        groups: dict[str, list[str]] = {"": ["v1"]} if core else self.groups()
        items = []
        for group, versions in groups.items():
            shown = [
                {"version": version, "resources": self._aggregated_resources(group, version), "freshness": "Current"}
                for version in versions
            ]
            metadata: Json = {"creationTimestamp": None} | ({"name": group} if group else {})
            items.append({"metadata": metadata, "versions": shown})
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}

    def _aggregated_resources(self, group: str, version: str) -> list[Json]:
        plain: list[Any] = (self.resource_list(group, version) or {}).get("resources", [])
        found: dict[str, Json] = {}
        for item in plain:
            name, _, subresource = item["name"].partition("/")
            kind = {
                "group": item.get("group", group), "version": item.get("version", version), "kind": item["kind"],
            }  # fmt: skip
            if subresource:
                found[name].setdefault("subresources", []).append(
                    {"subresource": subresource, "responseKind": kind, "verbs": item["verbs"]}
                )
                continue
            found[name] = {
                "resource": name, "responseKind": kind, "scope": "Namespaced" if item["namespaced"] else "Cluster",
                "singularResource": item["singularName"], "verbs": item["verbs"],
            }  # fmt: skip
            for extra in ("shortNames", "categories"):
                if extra in item:
                    found[name][extra] = item[extra]
        return list(found.values())

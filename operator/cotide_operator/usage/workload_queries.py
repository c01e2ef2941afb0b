"""Chooses the query for a Workload's rate or latency: the administrator's template, or its own where that is allowed.

Called by `prometheus` for each query in its turn. A template gets the Workload's namespace and the names of its pods, a
tenant's own query its namespace, in every selector (see `promql`). Invariant: unless the administrator sets
"unrestricted", each query can read its own namespace's series only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from cotide_core.limits import QUERY_CHARACTERS
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.config.metric_settings import WorkloadQueriesSettings
from cotide_operator.config.promql import LabelMatcher, PromQuery, QueryRefused

Field = Literal["rpsQuery", "latencyQuery"]
FIELDS: Final[tuple[Field, ...]] = ("rpsQuery", "latencyQuery")
_TEMPLATES: Final[dict[Field, str]] = {
    "rpsQuery": "metricsSource.prometheus.workloadQueries.rps",
    "latencyQuery": "metricsSource.prometheus.workloadQueries.latency",
}
NAMED_PODS: Final = 200
"""Pods that a selector names one by one; beyond it, the beginnings of their names. Chosen: 200 names make 10 kB."""
_POD_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class WorkloadQuery(NamedTuple):
    """One number of one Workload."""

    workload: str
    namespace: str
    field: Field

    @property
    def name(self) -> str:
        """Return its name for logs and messages."""
        return f"{self.workload} {self.field}"


class Asked(NamedTuple):
    """The text that is sent for a query, and its origin.

    Attributes
    ----------
    text : PromQL; empty for no query.
    is_selector : whether timestamp() of it gives the samples' own times.
    origin : the field that it comes from, for messages.
    refused : why the Workload's own query is not sent; empty where it has none or it is sent.
    """

    text: str
    is_selector: bool
    origin: str
    refused: str = ""


class WorkloadQueries:
    """Makes the queries of all Workloads.

    Parameters
    ----------
    settings : templates, and the namespaces that may bring their own queries.
    cache : the Workloads and their pods.
    """

    def __init__(self, settings: WorkloadQueriesSettings, cache: ObjectCache) -> None:
        self._settings = settings
        self._cache = cache
        texts = {"rpsQuery": settings.rps, "latencyQuery": settings.latency}
        self._templates = {field: PromQuery.parse(text) for field, text in texts.items() if text is not None}
        self._made: dict[WorkloadQuery, tuple[object, Asked]] = {}
        """Queries that were made and their inputs: a query is parsed again only when it or the pods changed."""

    def by_namespace(self) -> dict[str, list[WorkloadQuery]]:
        """Return every allowed query, and forget those of Workloads that are gone."""
        found: dict[str, list[WorkloadQuery]] = {}
        for key, workload in self._cache.workloads.items():
            namespace = workload.metadata.namespace
            for field in FIELDS:
                if field in self._templates or _own(workload, field):
                    found.setdefault(namespace, []).append(WorkloadQuery(key, namespace, field))
        if self._made:
            there = {query for queries in found.values() for query in queries}
            self._made = {query: made for query, made in self._made.items() if query in there}
        return found

    def make(self, query: WorkloadQuery) -> Asked:
        """Return the text to send; empty for a Workload without pods, or one that is gone."""
        workload = self._cache.workloads.get(query.workload)
        if workload is None:
            return Asked("", False, "")
        own = _own(workload, query.field)
        pods = tuple(sorted(pod.metadata.name for pod in self._cache.pods_of_workload(query.workload)))
        made = self._made.get(query)
        if made is None or made[0] != (own, pods):
            made = self._made[query] = ((own, pods), self._make(query, own, pods))
        return made[1]

    def _make(self, query: WorkloadQuery, own: str, pods: Sequence[str]) -> Asked:
        refused = ""
        if own:
            try:
                return self._make_own(query, own)
            except QueryRefused as error:
                refused = f"spec.qos.{query.field}: {error}"
        template, origin = self._templates.get(query.field), _TEMPLATES[query.field]
        if template is None or not pods:
            return Asked("", False, origin, refused)
        namespace, pod = self._settings.namespace_label, self._settings.pod_label
        matchers = (LabelMatcher(namespace, "=", query.namespace), LabelMatcher(pod, "=~", pod_pattern(pods)))
        try:
            return Asked(template.enforced(matchers), template.is_selector, origin, refused)
        except QueryRefused as error:
            return Asked("", False, origin, refused or f"{origin}: {error}")

    def _make_own(self, query: WorkloadQuery, own: str) -> Asked:
        freedom, origin = self._settings.freedom(query.namespace), f"spec.qos.{query.field}"
        if freedom is None:
            raise QueryRefused(
                f"Workloads of namespace {query.namespace} may not bring queries of their own: the administrator's"
                " template is asked (metricsSource.prometheus.workloadQueries)"
            )
        if freedom == "unrestricted":
            if len(own) > QUERY_CHARACTERS:
                raise QueryRefused(f"it has {len(own)} characters, {QUERY_CHARACTERS} are allowed")
            return Asked(own, is_plain_selector(own), origin)
        parsed = PromQuery.parse(own)
        parsed.check_ranges()
        matcher = LabelMatcher(self._settings.namespace_label, "=", query.namespace)
        return Asked(parsed.enforced((matcher,)), parsed.is_selector, origin)


def pod_pattern(names: Iterable[str]) -> str:
    """Return a regular expression for names of pods: all names, or for very many their beginnings."""
    usable = [name for name in names if _POD_NAME.fullmatch(name)]
    if len(usable) > NAMED_PODS:
        first, last = min(usable), max(usable)
        shared = next(
            (at for at, (text, other) in enumerate(zip(first, last, strict=False)) if text != other), len(first)
        )
        return f"{_literal(first[:shared])}.*"
    return "|".join(_literal(name) for name in usable)


def is_plain_selector(text: str) -> bool:
    """Whether a query that is sent unchanged is a plain selector; False when it can't be parsed here."""
    try:
        return PromQuery.parse(text).is_selector
    except QueryRefused:
        return False


def _literal(name: str) -> str:
    return name.replace(".", "[.]")


def _own(workload: CustomObject, field: Field) -> str:
    qos = workload.spec.get("qos")
    text = qos.get(field) if isinstance(qos, dict) else None
    return text if isinstance(text, str) else ""

"""The official Kubernetes client for the commands: reads a cluster once, and does what `carrier` asks of it.

Called by ``cotide consolidate`` and ``cotide whatif``. A plan needs `get` and `list` on pods, nodes, namespaces,
priority classes, disruption budgets and, where they are installed, our own resources; what may not be read beside pods
and nodes is left out with a warning. Carrying out needs `patch` on nodes and `create` on pods/eviction as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.objects import ApiStruct, NodeObject, PodObject
from cotide_kube.official import ask, connect
from cotide_operator.apis.names import GROUP
from cotide_operator.cache.object_cache import KINDS, TYPES, Kind, ObjectCache, controller_of, key_of
from cotide_operator.consolidation.carrier import MARK, NodeNow, PodNow
from cotide_operator.consolidation.picture import Picture, picture_of

PAGE: Final = 500
"""Objects of one answer (chosen: kubectl's)."""


class _ListMeta(ApiStruct, frozen=True):
    continues: str = msgspec.field(default="", name="continue")


class _Items(ApiStruct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] = ()


class _VolumeKinds(ApiStruct, frozen=True):
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None


class _SpecVolumes(ApiStruct, frozen=True):
    volumes: tuple[_VolumeKinds, ...] = ()


class _PodVolumes(ApiStruct, frozen=True):
    spec: _SpecVolumes = _SpecVolumes()


class OfficialClient:
    """One connection, by a kubeconfig or from inside a cluster.

    Raises
    ------
    ClusterError
        When there is no usable configuration.
    """

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        from kubernetes import client

        self._api: Any = connect(kubeconfig, context)
        self._core: Any = client.CoreV1Api(self._api)
        self._lists: dict[Kind, Callable[..., Any]] = {
            "nodes": self._core.list_node,
            "namespaces": self._core.list_namespace,
            "pods": self._core.list_pod_for_all_namespaces,
            "priorityclasses": client.SchedulingV1Api(self._api).list_priority_class,
            "poddisruptionbudgets": client.PolicyV1Api(self._api).list_pod_disruption_budget_for_all_namespaces,
        }
        custom: Any = client.CustomObjectsApi(self._api)
        for kind in ("workloads", "jobs"):
            self._lists[kind] = lambda kind=kind, **pages: custom.list_cluster_custom_object(
                GROUP, "v1alpha1", kind, **pages
            )

    def read(self) -> Picture:
        """Read the cluster.

        Raises
        ------
        ClusterError
            When pods or nodes may not be read, or the server does not answer.
        """
        cache = ObjectCache()
        warnings = []
        local: set[str] = set()
        for kind in KINDS:
            try:
                for raw in self._pages(kind):
                    item = msgspec.json.decode(raw, type=TYPES[kind])
                    cache.apply(kind, "ADDED", item)
                    if kind == "pods" and _has_local_storage(raw):
                        local.add(key_of(item.metadata))
            except ClusterError as error:
                if kind in ("pods", "nodes"):
                    raise
                warnings.append(f"{kind} are left out: {error}")
        picture = picture_of(cache, time.time(), local)
        return Picture(
            picture.state, picture.now, picture.facts, picture.budgets, picture.owners, (*warnings, *picture.warnings)
        )

    def _pages(self, kind: Kind) -> list[msgspec.Raw]:
        found: list[msgspec.Raw] = []
        after = ""
        while True:
            pages = {"limit": PAGE, **({"_continue": after} if after else {})}
            items = msgspec.json.decode(ask(self._lists[kind], **pages), type=_Items)
            found += items.items
            after = items.metadata.continues
            if not after:
                return found

    def node(self, name: str) -> NodeNow | None:
        """Return a node as it is now; None when it is gone."""
        try:
            found = msgspec.json.decode(ask(self._core.read_node, name), type=NodeObject)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return NodeNow(found.spec.unschedulable, found.metadata.annotations.get(MARK, ""))

    def marked(self) -> dict[str, str]:
        """Return the nodes that carry our mark."""
        nodes = [msgspec.json.decode(raw, type=NodeObject) for raw in self._pages("nodes")]
        return {one.metadata.name: one.metadata.annotations[MARK] for one in nodes if MARK in one.metadata.annotations}

    def mark(self, name: str, mark: str | None, *, cordoned: bool) -> None:
        """Cordon or uncordon a node and write our mark on it, or take it off, in one patch."""
        body = {"metadata": {"annotations": {MARK: mark}}, "spec": {"unschedulable": cordoned or None}}
        ask(self._core.patch_node, name, body)

    def pods(self) -> list[PodNow]:
        """Return all pods that have not ended."""
        pods = [msgspec.json.decode(raw, type=PodObject) for raw in self._pages("pods")]
        return [_now(pod) for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]

    def evict(self, key: str, uid: str) -> int:
        """Ask for an eviction of this very pod; returns the HTTP status."""
        from kubernetes.client.exceptions import ApiException

        namespace, _, name = key.partition("/")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            answer = self._core.create_namespaced_pod_eviction(name, namespace, body, _preload_content=False)
        except ApiException as error:
            return int(error.status or 0)
        return int(answer.status)


def _has_local_storage(raw: msgspec.Raw) -> bool:
    volumes = msgspec.json.decode(raw, type=_PodVolumes).spec.volumes
    return any(one.empty_dir is not None or one.host_path is not None for one in volumes)


def _now(pod: PodObject) -> PodNow:
    owner = controller_of(pod.metadata)
    conditions = {one.type: one for one in pod.status.conditions}
    ready = "Ready" in conditions and conditions["Ready"].status == "True"
    scheduled = conditions.get("PodScheduled")
    refused = scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable"
    return PodNow(
        key_of(pod.metadata),
        pod.metadata.uid,
        pod.spec.node_name,
        "" if owner is None else owner.uid,
        ready and pod.metadata.deletion_timestamp is None,
        scheduled.message if refused and scheduled is not None else "",
    )

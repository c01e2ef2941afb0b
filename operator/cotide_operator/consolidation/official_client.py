"""The official Kubernetes client for the commands: reads a cluster once, and carries out the actions of `carrier`.

``cotide consolidate`` and ``cotide whatif`` call it. The client blocks, so each call that a `Carrier` awaits runs in a
thread: a cancelled task waits for no answer. A plan needs `get` and `list` on pods, nodes, namespaces, priority classes
and disruption budgets. It also reads our own resources and those with the size of a gang, where they are installed. A
kind other than pods and nodes that may not be read is left out with a warning. Carrying a plan out also needs `patch`
on nodes and `create` on pods/eviction.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.decoding import UNREADABLE
from cotide_kube.objects import ApiStruct, NodeObject, PodObject
from cotide_kube.official import WRITE_SECONDS, ask, connect
from cotide_kube.plain_objects import OddObjectError, typed
from cotide_operator.apis.names import GROUP
from cotide_operator.cache.object_cache import KINDS, OLDER_PATHS, OPTIONAL_KINDS, PATHS, TYPES, Kind, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.config.settings import Settings
from cotide_operator.consolidation.carrier import ENDED, MARK, NodeNow, PodNow, node_now, pod_now
from cotide_operator.consolidation.gang_now import GangNow, gang_now, names_a_gang
from cotide_operator.consolidation.picture import Picture, picture_of
from cotide_operator.scheduling.disruption_budgets import kept_by_budgets
from cotide_operator.translation.pod_groups import named_by

PAGE: Final = 500
"""Objects of one answer (chosen: kubectl's)."""


class _ListMeta(ApiStruct, frozen=True):
    continues: str = msgspec.field(default="", name="continue")


class _Items(ApiStruct, frozen=True, kw_only=True):
    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] | None
    """Always present: an answer without it is not from an API server, rather than a cluster without pods."""


T = TypeVar("T")


def decoded(raw: bytes | msgspec.Raw, kind: type[T], what: str) -> T:
    """Decode an object from an API server.

    Raises
    ------
    OddObjectError
        When a field does not fit its kind.
    ClusterError
        When it is no such object: a load balancer's page with status 200, for example.
    """
    try:
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.ValidationError:  # the reason may be only a null
            found = msgspec.json.decode(raw)
    except UNREADABLE as error:
        raise ClusterError(f"the answer about {what} is not what an API server sends: {error}") from error
    return typed(found, kind, what)


def _with_name(found: Any, kind: Kind) -> Any:
    """Return an object of a list after a check that it has a name."""
    if not found.metadata.name:
        raise ClusterError(f"the answer about {kind} is not what an API server sends: one has no name")
    return found


def _first_served(custom: Any, paths: Sequence[str], **pages: Any) -> Any:
    """List a kind under the first of its paths that the server serves."""
    from kubernetes.client.exceptions import ApiException

    for path in paths:
        try:
            return custom.list_cluster_custom_object(*path.removeprefix("/apis/").split("/"), **pages)
        except ApiException as error:
            if error.status != 404 or path == paths[-1]:
                raise
    return None


class OfficialClient:
    """One connection, by a kubeconfig or from inside a cluster.

    Parameters
    ----------
    settings : the operator's: the pods that it places, and the source of a pod's class. None: the defaults.

    Raises
    ------
    ClusterError
        When there is no usable configuration.
    """

    def __init__(
        self, kubeconfig: str | None = None, context: str | None = None, settings: Settings | None = None
    ) -> None:
        from kubernetes import client

        self._settings = settings or Settings()
        self._wall = ScaledClock()
        self._api: Any = connect(kubeconfig, context)
        self._core: Any = client.CoreV1Api(self._api)
        self._writes = threading.Lock()
        """Held during a write to a node: an undo then comes after the cordon of a cancelled task."""
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
        for kind in OPTIONAL_KINDS:
            paths = (PATHS[kind], *OLDER_PATHS.get(kind, ()))
            self._lists[kind] = lambda paths=paths, **pages: _first_served(custom, paths, **pages)

    def read(self) -> Picture:
        """Read the cluster.

        Raises
        ------
        ClusterError
            When pods or nodes may not be read, or the server does not answer.
        """
        cache, warnings = self._read((*KINDS, *OPTIONAL_KINDS))
        picture = picture_of(cache, time.time(), scheduler_names=self._settings.scheduler_names)
        return replace(picture, warnings=(*warnings, *picture.warnings))

    def _read(self, kinds: Iterable[Kind]) -> tuple[ObjectCache, list[str]]:
        """Read objects of some kinds, pods before the kinds that depend on them; return them with warnings about
        omissions."""
        cache = ObjectCache()
        cache.max_class_without_label = self._settings.tenancy.max_class_without_label
        cache.class_by_priority_class = self._settings.classes.by_priority_class
        warnings: list[str] = []
        for kind in kinds:
            if kind in OPTIONAL_KINDS and kind not in {
                named[0] for pod in cache.pods.values() if (named := named_by(pod))
            }:
                continue  # no pod names one: most clusters serve none, and most roles may not ask
            if kind not in self._lists:
                continue  # claims and volumes: pods that have any stay on their nodes anyway
            try:
                for raw in self._pages(kind):
                    self._take(cache, kind, raw, warnings)
            except ClusterError as error:
                if kind in ("pods", "nodes"):
                    raise
                warnings.append(f"{kind} are left out: {error}")
        return cache, warnings

    def _take(self, cache: ObjectCache, kind: Kind, raw: msgspec.Raw, warnings: list[str]) -> None:
        """Add one object; a faulty one is left out, except pods and nodes: without its pods a node looks empty."""
        try:
            item = _with_name(decoded(raw, TYPES[kind], kind), kind)
        except OddObjectError as error:
            if kind in ("pods", "nodes"):
                raise
            warnings.append(f"left out: {error}")
            return
        cache.apply(kind, "ADDED", item)

    def _listed(self, kind: Kind, type_of_one: type[T]) -> list[T]:
        return [_with_name(decoded(raw, type_of_one, kind), kind) for raw in self._pages(kind)]

    def _pages(self, kind: Kind) -> list[msgspec.Raw]:
        found: list[msgspec.Raw] = []
        after = ""
        while True:
            pages: dict[str, Any] = {"limit": PAGE, **({"_continue": after} if after else {})}
            items = decoded(ask(self._lists[kind], **pages), _Items, kind)
            found += items.items or ()
            if not items.metadata.continues:
                return found
            if items.metadata.continues == after:
                raise ClusterError(f"the server returns the same page of {kind} again and again: is it an API server?")
            after = items.metadata.continues

    async def node(self, name: str) -> NodeNow | None:
        """Return a node as it is now; None when it is gone."""
        try:
            answer = await asyncio.to_thread(ask, self._core.read_node, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return node_now(decoded(answer, NodeObject, f"node {name}"))

    async def marked(self) -> dict[str, str]:
        """Return the nodes that carry our mark."""
        nodes = await asyncio.to_thread(self._listed, "nodes", NodeObject)
        return {
            node.metadata.name: node.metadata.annotations[MARK] for node in nodes if MARK in node.metadata.annotations
        }

    async def mark(self, name: str, mark: str | None, *, cordoned: bool) -> None:
        """Cordon or uncordon a node and write or remove our mark, in one patch."""
        body = {"metadata": {"annotations": {MARK: mark}}, "spec": {"unschedulable": cordoned or None}}
        await asyncio.to_thread(self._patch_node, name, body)

    def _patch_node(self, name: str, body: Any) -> None:
        with self._writes:
            ask(self._core.patch_node, name, body, seconds=WRITE_SECONDS)

    async def pods(self, *, node: str = "", owner: str = "") -> list[PodNow]:
        """Return the pods that have not ended: those on a node, those of an owner, or all."""
        pods = await asyncio.to_thread(self._listed, "pods", PodObject)
        found = [pod_now(pod, self._wall) for pod in pods if pod.status.phase not in ENDED]
        return [now for now in found if (not node or now.node == node) and (not owner or now.owner == owner)]

    async def gang(self, key: str) -> GangNow | None:
        """Return the present state of a pod's gang; None for a pod without one, which costs one request."""
        namespace, _, name = key.partition("/")
        try:
            answer = await asyncio.to_thread(ask, self._core.read_namespaced_pod, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        if not names_a_gang(decoded(answer, PodObject, f"pod {key}")):
            return None
        there = await asyncio.to_thread(self._read, ("jobs", "workloads", "pods", *OPTIONAL_KINDS))
        return gang_now(there[0], key)

    async def kept(self, keys: Sequence[str]) -> str:
        """Return a sentence about the first of several pods that a budget would protect if all were evicted; empty for
        none."""
        cache = (await asyncio.to_thread(self._read, ("pods", "poddisruptionbudgets")))[0]
        pods = [pod for key in keys if (pod := cache.pods.get(key)) is not None]
        return next(iter(kept_by_budgets(pods, cache).values()), "")

    async def evict(self, key: str, uid: str) -> int:
        """Request the eviction of this very pod; returns the HTTP status, 0 when there is no answer in time."""
        from kubernetes.client.exceptions import ApiException

        namespace, _, name = key.partition("/")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            answer = await asyncio.to_thread(
                self._core.create_namespaced_pod_eviction,
                name,
                namespace,
                body,
                _preload_content=False,
                _request_timeout=WRITE_SECONDS,
            )
        except ApiException as error:
            return int(error.status or 0)
        except ClusterError:
            return 0
        return int(answer.status)

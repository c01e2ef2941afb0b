"""Reads the objects for an explanation from the API server, with the official client.

``cotide explain`` calls it; the objects go to `explain`. Invariant: only GETs. A further object that is missing or
forbidden is left out of the explanation, never a reason to fail; a malformed one is left out with a warning. Malformed
fields of the explained object are left out, and the explanation names them. All results have passed
`cotide_kube.plain_objects`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.objects import (
    ApiStruct,
    ClaimObject,
    Metadata,
    NamespaceObject,
    NodeObject,
    PodObject,
    StorageClassObject,
)
from cotide_kube.official import ask, connect, list_in, namespace_of, object_in
from cotide_kube.plain_objects import OddObjectError, checked, those_checked, without_odd
from cotide_operator.apis.names import GROUP, JOB_LABEL, VERSION
from cotide_operator.apis.types import API_VERSION, WORKLOAD_LABEL, LabelSelector
from cotide_operator.cache.object_cache import CustomObject
from cotide_operator.explain.class_rule import ClassContext
from cotide_operator.explain.explanation import Explanation, explain_job, explain_pod, relevant_node
from cotide_operator.explain.reclaimed import reclaimed_requests
from cotide_operator.explain.volume_wait import claim_names_of, class_of

Object = dict[str, Any]

_OPTIONAL: Final = frozenset({403, 404})
_OURS: Final = {"Job": "jobs", "Workload": "workloads"}
PAGE: Final = 500
"""Objects of one answer (chosen: kubectl's)."""


class _Involved(ApiStruct, frozen=True):
    name: str = ""
    uid: str = ""


class EventObject(ApiStruct, frozen=True):
    """The read part of an event."""

    metadata: Metadata
    involved_object: _Involved = _Involved()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    last_timestamp: str = ""
    event_time: str = ""


class Reader:
    """One connection, by a kubeconfig or from inside a cluster.

    Attributes
    ----------
    warnings : one sentence for each malformed object that was left out.

    Raises
    ------
    ClusterError
        When there is no usable configuration.
    """

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        from kubernetes import client

        api = connect(kubeconfig, context)
        self.namespace = namespace_of(kubeconfig, context)
        self.warnings: list[str] = []
        self._core: Any = client.CoreV1Api(api)
        self._storage: Any = client.StorageV1Api(api)
        self._custom: Any = client.CustomObjectsApi(api)

    def pod(self, namespace: str, name: str) -> Explanation:
        """Explain one pod; raises `ClusterError` if it does not exist."""
        pod, odd = _must_have(f"pod {namespace}/{name}", PodObject, self._core.read_namespaced_pod, name, namespace)
        node, neighbours = self._node(pod)
        claims = self._claims(pod)
        context = ClassContext(
            owner=self._owner(pod),
            namespace=self._may_have("namespace", NamespaceObject, self._core.read_namespace, namespace),
            events=[event for claim in (pod, *claims) for event in self._events(namespace, [claim])],
            node=node,
            neighbours=neighbours,
            claims=claims,
            storage_classes=self._storage_classes(claims),
        )
        return _with_odd(explain_pod(pod, context, time.time()), odd)

    def job(self, namespace: str, name: str) -> Explanation:
        """Explain one Job of ours; raises `ClusterError` if it does not exist."""
        what = f"jobs.cotide.dev {namespace}/{name}"
        call = self._custom.get_namespaced_custom_object
        job, odd = _must_have(what, CustomObject, call, GROUP, VERSION, namespace, "jobs", name)
        ours = f"{JOB_LABEL}={name}"
        labelled = self._list("pod", PodObject, self._core.list_namespaced_pod, namespace, label_selector=ours)
        pods = [
            pod
            for pod in labelled
            if any(owner.get("uid") == job["metadata"]["uid"] for owner in pod["metadata"].get("ownerReferences") or ())
        ]
        # Waiting and running pods first: the question is about them.
        pods.sort(key=lambda pod: ((pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"), _age(pod)))
        return _with_odd(explain_job(job, pods, self._events(namespace, [job, *pods]), time.time()), odd)

    def _ours(self, namespace: str, plural: str, name: str) -> Object | None:
        call = self._custom.get_namespaced_custom_object
        return self._may_have(f"{plural}.cotide.dev", CustomObject, call, GROUP, VERSION, namespace, plural, name)

    def _owner(self, pod: Object) -> Object | None:
        """Return the Job or Workload of ours that owns or selects a pod."""
        metadata = pod["metadata"]
        namespace = metadata["namespace"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller") and owner.get("apiVersion") == API_VERSION and owner.get("kind") in _OURS:
                return self._ours(namespace, _OURS[owner["kind"]], owner.get("name", ""))
        adopted_by = (metadata.get("labels") or {}).get(WORKLOAD_LABEL)
        if adopted_by is None:
            return None
        workload = self._ours(namespace, "workloads", adopted_by)
        selector = ((workload or {}).get("spec") or {}).get("selector")
        if workload is None or not selector:
            return None
        try:
            selects = LabelSelector.model_validate(selector).matches(metadata.get("labels") or {})
        except ValueError:  # an unreadable selector selects nothing, as for the operator
            return None
        return workload if selects else None

    def _node(self, pod: Object) -> tuple[Object | None, list[Object] | None]:
        """Return the node that explains most about a pod with reclaimed requests, and its pods."""
        name = relevant_node(pod) if any(reclaimed_requests(pod)) else None
        if name is None:
            return None, None
        node = self._may_have("node", NodeObject, self._core.read_node, name)
        on_node = f"spec.nodeName={name}"
        try:
            return node, self._list("pod", PodObject, self._core.list_pod_for_all_namespaces, field_selector=on_node)
        except ApiError as error:
            if error.status in _OPTIONAL:
                return node, None
            raise

    def _claims(self, pod: Object) -> list[Object]:
        """Return the volume claims of a pod without a node."""
        read, namespace = self._core.read_namespaced_persistent_volume_claim, pod["metadata"]["namespace"]
        found = [self._may_have("claim", ClaimObject, read, name, namespace) for name in claim_names_of(pod)]
        return [claim for claim in found if claim is not None]

    def _storage_classes(self, claims: Sequence[Object]) -> dict[str, Object]:
        names = dict.fromkeys(name for claim in claims if (name := class_of(claim)))
        found = {
            name: self._may_have("storage class", StorageClassObject, self._storage.read_storage_class, name)
            for name in names
        }
        return {name: item for name, item in found.items() if item is not None}

    def _events(self, namespace: str, objects: Sequence[Object]) -> list[Object]:
        """Return the events about some objects."""
        fields = {}
        if len(objects) == 1:
            fields["field_selector"] = f"involvedObject.uid={objects[0]['metadata']['uid']}"
        try:
            events = self._list("event", EventObject, self._core.list_namespaced_event, namespace, **fields)
        except ApiError as error:
            if error.status in _OPTIONAL:
                return []
            raise
        uids = {item["metadata"].get("uid") for item in objects}
        return [event for event in events if (event.get("involvedObject") or {}).get("uid") in uids]

    def _may_have(self, what: str, kind: type[Any], call: Callable[..., Any], *args: str) -> Object | None:
        try:
            return checked(object_in(ask(call, *args)), kind, what)
        except ApiError as error:
            if error.status in _OPTIONAL:
                return None
            raise
        except OddObjectError as error:
            self.warnings.append(f"left out: {error}")
            return None

    def _list(self, what: str, kind: type[Any], call: Callable[..., Any], *args: Any, **how: Any) -> list[Object]:
        """Return all objects of a list, page by page."""
        found: list[Object] = []
        after = ""
        while True:
            pages: Object = {**how, "limit": PAGE, **({"_continue": after} if after else {})}
            items, following = list_in(ask(call, *args, **pages))
            good, odd = those_checked(items, kind, what)
            found += good
            self.warnings += odd
            if not following:
                return found
            if following == after:
                raise ClusterError("the API server repeats the same page of a list without end; is it one?")
            after = following


def _age(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]


def _with_odd(explanation: Explanation, odd: Sequence[str]) -> Explanation:
    """Return an explanation that names the unread fields of its object."""
    return replace(explanation, facts=(*explanation.facts, *(("Not read", why) for why in odd)))


def _must_have(what: str, kind: type[Any], call: Callable[..., Any], *args: str) -> tuple[Object, list[str]]:
    """Return an object without its malformed fields, and a sentence for each such field."""
    try:
        found, odd = without_odd(object_in(ask(call, *args)), kind, what.partition(" ")[0])
    except ApiError as error:
        if error.status != 404:
            raise
        raise ClusterError(f"there is no {what} (is the name right, and the namespace?)") from error
    if not all(found["metadata"].get(part) for part in ("uid", "namespace", "name")):
        raise ClusterError(f"the answer about {what} is not what an API server sends; is it one?")
    return found, odd

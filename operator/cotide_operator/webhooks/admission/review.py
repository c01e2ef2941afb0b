"""From an AdmissionReview to its answer: pods that get reclaimed requests, and the patch for them.

`server` calls it for each review. It reads the cache and writes nothing, so that every replica can answer and a dry run
needs no special case. A pod is changed if it is being created, names our scheduler, and the rules of its class (the
same as for scheduling) make it batch or gratis; any other object is allowed unchanged. The webhook's namespaceSelector
selects the namespaces.

Invariant: a second answer changes nothing more. A pod that was changed here and then got plain requests (a sidecar from
a later webhook, the defaults of a LimitRange) is completed when it is shown again.

Source: https://kubernetes.io/docs/reference/config-api/apiserver-admission.v1/
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
import orjson

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_core.limits import MAX_CONTAINERS, MAX_REVIEW_VALUES
from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.cache.quarantine import where_raised
from cotide_operator.reclaimed.pod_requests import RECLAIMED, reclaim_patch
from cotide_operator.translation.pods_and_nodes import affiliation_of_new, class_of

_LOG = logging.getLogger(__name__)

Json = dict[str, Any]
Outcome = Literal["reclaimed", "untouched", "failed"]

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
ORIGINAL_RESOURCES_ANNOTATION: Final = "cotide.dev/original-resources"
"""The former resources of the containers by name, as JSON. Its presence marks a pod that the webhook changed."""
_PODS: Final = {"group": "", "version": "v1", "resource": "pods"}
_LISTS: Final = ("initContainers", "containers")
_KINDS: Final = ("limits", "requests")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one review."""

    uid: str
    patch: list[Json] = field(default_factory=list)
    warning: str = ""
    failed: bool = False
    """Whether the pod made a part of us raise; it is allowed unchanged."""

    @property
    def outcome(self) -> Outcome:
        """Outcome for the object, as the metrics count it."""
        if self.failed:
            return "failed"
        return "reclaimed" if self.patch else "untouched"

    def body(self) -> bytes:
        """Return the AdmissionReview to send back."""
        response: Json = {"uid": self.uid, "allowed": True}
        if self.patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(orjson.dumps(self.patch)).decode("ascii")
        if self.warning:
            response["warnings"] = [self.warning]
        return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


class Reviewer:
    """Answers reviews from the cache.

    Parameters
    ----------
    cache : ObjectCache
        Read only.
    scheduler_names : tuple of str
        The schedulers of our pods; all other pods stay unchanged.
    """

    def __init__(self, cache: ObjectCache, scheduler_names: tuple[str, ...]) -> None:
        self._cache = cache
        self._scheduler_names = scheduler_names

    def answer(self, body: bytes) -> Answer:
        """Return the answer to a review.

        Raises
        ------
        InputError
            If the body is no valid review; names the field.
        """
        try:
            request = _request_in(body)
        except RecursionError:
            raise InputError("is nested too deep", field="request") from None
        try:
            answer = self._answered(request)
            answer.body()  # a patch that can't be encoded is no answer either
        except InputError:
            raise
        except RecursionError:
            raise InputError("is nested too deep", field="request.object") from None
        except Exception as error:  # noqa: BLE001 - a faulty pod, or a faulty owner of it, is allowed unchanged
            _LOG.error("a pod of namespace %.253r is allowed unchanged: its review fails%s: %.200s",
                       str(request.get("namespace")), where_raised(error), error)  # fmt: skip
            return Answer(
                request["uid"], warning="cotide can't read this pod: it keeps its plain requests", failed=True
            )
        return answer

    def _answered(self, request: Json) -> Answer:
        uid = str(request["uid"])
        if request.get("operation") != "CREATE" or request.get("resource") != _PODS or request.get("subResource"):
            return Answer(uid)
        pod = request.get("object")
        if not isinstance(pod, dict):
            raise InputError("must be the pod that is created", field="request.object")
        if (containers := _containers(pod)) > MAX_CONTAINERS:
            many = f"has {containers} containers; cotide reads at most {MAX_CONTAINERS}"
            return Answer(uid, warning=f"this pod {many}: it keeps its plain requests")
        typed = _typed(pod, str(request.get("namespace") or ""))
        if typed.spec.scheduler_name not in self._scheduler_names:
            return Answer(uid)
        if not self._cache.synced:
            # The class is unknown without every Job, Workload and namespace; plain requests are always safe.
            return Answer(uid, warning="cotide has only just started: this pod keeps its plain requests")
        if class_of(typed, affiliation_of_new(typed, self._cache)) is WorkloadClass.ONLINE:
            return Answer(uid)
        return Answer(uid, _patch(pod))


def _containers(pod: Json) -> int:
    spec = pod.get("spec")
    listed = [spec.get(name) for name in _LISTS] if isinstance(spec, dict) else []
    return sum(len(containers) for containers in listed if isinstance(containers, list))


def _request_in(body: bytes) -> Json:
    values = sum(body.count(mark) for mark in (b",", b"{", b"["))
    if values > MAX_REVIEW_VALUES:
        raise InputError(f"has {values} values, at most {MAX_REVIEW_VALUES} are read", field="request")
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"the review is no JSON: {error}") from None
    if not isinstance(review, dict):
        raise InputError(f"the review must be an object with apiVersion: {API_VERSION} and kind: {KIND}")
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if review.get(name) != wanted:
            raise InputError(f"must be {wanted}", field=name)
    request = review.get("request")
    if not isinstance(request, dict):
        raise InputError("must be an object", field="request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise InputError("must be the uid of this review", field="request.uid")
    return request


def _typed(pod: Json, namespace: str) -> PodObject:
    try:
        typed = msgspec.convert(_without_nulls(pod), PodObject)
    except msgspec.ValidationError as error:
        raise InputError(f"can't be read as a pod: {error}", field="request.object") from None
    if typed.metadata.namespace == namespace:
        return typed
    # A pod that is being created may omit the namespace of its URL.
    return msgspec.structs.replace(typed, metadata=msgspec.structs.replace(typed.metadata, namespace=namespace))


def _without_nulls(value: Any) -> Any:
    """Return plain data without fields that are null, which the API treats as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _patch(pod: Json) -> list[Json]:
    """Return the patch of a batch or gratis pod; empty if nothing can or must be changed."""
    annotations = pod["metadata"].get("annotations")
    annotations = annotations if isinstance(annotations, dict) else {}
    again = ORIGINAL_RESOURCES_ANNOTATION in annotations
    try:
        steps = reclaim_patch(_without_reclaimed(pod) if again else pod)
    except InputError:
        return []  # the API server refuses such an amount itself, with its own message
    if not steps:
        return []
    original: Json = _noted(annotations[ORIGINAL_RESOURCES_ANNOTATION]) if again else {}
    for step in steps:
        _, _, kind, index, _ = step["path"].split("/")
        container = pod["spec"][kind][int(index)]
        before = container["resources"]
        if again:
            step["value"] = _with_reclaimed(before, step["value"])
        original.setdefault(str(container.get("name") or f"{kind}/{index}"), before)
    note = orjson.dumps(original, option=orjson.OPT_SORT_KEYS).decode()
    if annotations:
        key = ORIGINAL_RESOURCES_ANNOTATION.replace("/", "~1")  # RFC 6901
        return [*steps, {"op": "add", "path": f"/metadata/annotations/{key}", "value": note}]
    return [*steps, {"op": "add", "path": "/metadata/annotations", "value": {ORIGINAL_RESOURCES_ANNOTATION: note}}]


def _noted(note: Any) -> Json:
    try:
        found = orjson.loads(note)
    except (orjson.JSONDecodeError, TypeError):  # a foreign text in our annotation
        return {}
    return found if isinstance(found, dict) else {}


def _without_reclaimed(pod: Json) -> Json:
    """Return a pod as it was before a change here: it has plain requests only."""
    names = frozenset(RECLAIMED.values())
    spec = dict(pod["spec"])
    for listed in _LISTS:
        containers = spec.get(listed)
        if isinstance(containers, list):
            spec[listed] = [_stripped(container, names) for container in containers]
    return {**pod, "spec": spec}


def _stripped(container: Json, names: frozenset[str]) -> Json:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return container
    kept = dict(resources)
    for kind in _KINDS:
        amounts = kept.get(kind)
        if isinstance(amounts, dict):
            kept[kind] = {name: amount for name, amount in amounts.items() if name not in names}
    return {**container, "resources": kept}


def _with_reclaimed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Json:
    """Return translated resources, but keep requests of reclaimed capacity that the container already has.

    The first request takes precedence: plain amounts that appear on a changed pod are mostly the defaults of a
    LimitRange, which the API server adds again after each change.
    """
    held = {
        name: amount
        for kind in _KINDS
        for name, amount in (before.get(kind) or {}).items()
        if name in RECLAIMED.values()
    }
    return {**after, **{kind: {**(after.get(kind) or {}), **held} for kind in _KINDS}} if held else dict(after)

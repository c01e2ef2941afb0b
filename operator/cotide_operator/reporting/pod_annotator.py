"""Writes decisions onto their pods: class label, decision note, ``PodScheduled`` condition.

The loop names the pods with a new decision. The annotator writes the decision store's state at the moment of writing,
through the low-priority dispatcher. Label, note and condition of a waiting pod are one patch of its status, which takes
metadata along. The patch names the version of the pod that it was made for. After a binding the server refuses it, so
that no bound pod is marked unschedulable.

After a temporary failure a write is tried again with growing pauses and a limit: an autoscaler reads the condition, and
a node agent the label.

Invariants:

- A pod is patched only when a visible change is not on it yet.
- It is patched at most once per `NOTE_SECONDS`, and once per `COUNTS_SECONDS` where only counts differ, however many
  decisions there are.
- The last state is always written.
- The class label is written at most once. It replaces another one only if that names no class, or a higher class than
  its namespace permits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final

from cotide_core.classes import CLASS_LABEL, CLASSES
from cotide_core.errors import ClusterError
from cotide_core.instructions import WaitReason
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import Condition, PodObject
from cotide_kube.timestamps import format_timestamp
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import ObjectCache, key_of, namespace_of_key
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.message_class import is_alike
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, encode, is_noted

_LOG = logging.getLogger(__name__)

NOTE_SECONDS: Final = 10.0
"""Wall seconds between two notes on one waiting pod; chosen: a reader's patience, not an attempt's back-off."""
COUNTS_SECONDS: Final = 60.0
"""The same where only the counts of a refusal differ; chosen: 5,000 waiting pods then cost at most 83 patches a
second."""
CONFLICT_SECONDS: Final = 1.0
"""Wall seconds before a patch of an outdated version is made again; chosen: the watch has caught up by then."""
LABEL_SECONDS: Final = 2.0
"""Wall seconds after a binding before a label that the server did not take along is written on its own; chosen: the
watch shows the pod by then."""
MAX_RETRIES: Final = 6
"""Retries of a failed write: the first after `NOTE_SECONDS`, each other after twice as long, ten minutes in all.
Chosen: an API server is back by then, and pods that can never be written do not fill the dispatcher for ever."""
UNSCHEDULABLE: Final = "Unschedulable"
"""Condition reason of a pod that found no node, as kube-scheduler writes it (``PodReasonUnschedulable``)."""
_NO_CONDITION: Final = Condition()
SWEPT: Final = 1_000
"""Pods of one step of a sweep; chosen: some milliseconds of the loop."""


class PodAnnotator:
    """Keeps labels, notes and conditions on pods in step with the decision store."""

    def __init__(
        self,
        client: KubeClient,
        dispatcher: ApiDispatcher,
        cache: ObjectCache,
        decisions: DecisionStore,
        metrics: Metrics,
        *,
        class_of: Callable[[str], str | None],
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._cache = cache
        self._decisions = decisions
        self._metrics = metrics
        self._class_of = class_of
        self._view = TenantView(cache)
        self._noted: dict[str, tuple[float, tuple[str, str]]] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        """By pod: failed writes in a row, and the monotonic second of the next try."""
        self._later: dict[str, float] = {}
        """Pods to be noted later, with the earliest useful monotonic second."""
        self._unlabelled: dict[str, float] = {}
        self._unannotated: dict[str, float] = {}
        """Pods of `annotate` that get their annotation later."""
        self._label_one = self._label
        """Bound once: two objects fewer for each pod, which live until its label is written."""

    def labels_for(self, key: str) -> dict[str, str]:
        """Return the class label of a pod without one; the binding takes it along."""
        pod = self._cache.pods.get(key)
        if pod is None or not self._lacks_class(pod):
            return {}
        decided = self._class_of(key)
        return {CLASS_LABEL: decided} if decided is not None else {}

    def bound(self, key: str, sent: Mapping[str, str] | None = None) -> None:
        """Drop the unwritten reason why a pod waits; later write the class on a pod without one.

        Parameters
        ----------
        sent : mapping, optional
            The labels of its binding, which some servers do not take over; None when they are not known.
        """
        self.confirmed(key)
        lacked = self.labels_for(key) if sent is None else sent
        if lacked:
            self._unlabelled[key] = time.monotonic() + LABEL_SECONDS

    def confirmed(self, key: str) -> None:
        """Drop the unwritten reason why a pod waits: it is on a node."""
        self._later.pop(key, None)
        self._dispatcher.take_back(("note", key))

    def label(self, key: str) -> None:
        """Write the class on a pod without one, at a later time."""
        if self.labels_for(key):
            self._submit_label(key)

    def note(self, key: str) -> None:
        """Write a waiting pod's decision and condition, if a reader would see a difference."""
        decision = self._decisions.get(key)
        if decision is None or decision.node is not None:
            return
        wall, noted = self._noted.get(key, (float("-inf"), ("", "")))
        note = decision.reason, decision.message
        if noted == note:
            return
        now = time.monotonic()
        counts = _is_refusal(decision) and noted[0] == note[0] and is_alike(noted[1], note[1])
        due = max(wall + (COUNTS_SECONDS if counts else NOTE_SECONDS), self._rests_until(key))
        if due > now or not self._submit("note", key, self._note, urgent=self._is_first(key, decision)):
            self._later[key] = due

    def annotate(self, key: str) -> None:
        """Write the decision about another scheduler's pod onto it, at a later time; that scheduler writes its
        condition."""
        due = self._rests_until(key)
        if due > time.monotonic() or not self._submit("note", key, self._annotate):
            self._unannotated[key] = due

    def sweep_steps(self) -> Generator[None, None, None]:
        """Submit all postponed writes that are due, the oldest first, in steps; called with each publication.

        It takes all, because a long queue is published once in a minute: notes would never catch up in parts.
        """
        kept = (self._later, self.note), (self._unannotated, self.annotate), (self._unlabelled, self.label)
        for waiting, take_up in kept:
            now = time.monotonic()
            for number, key in enumerate([key for key, due in waiting.items() if due <= now], start=1):
                if key in waiting:  # it may be bound or gone since the last step
                    del waiting[key]
                    take_up(key)
                if number % SWEPT == 0:
                    yield

    def forget(self, key: str) -> None:
        """Drop a deleted pod."""
        self._noted.pop(key, None)
        self._failures.pop(key, None)
        self._later.pop(key, None)
        self._unlabelled.pop(key, None)
        self._unannotated.pop(key, None)

    def _is_first(self, key: str, decision: Decision) -> bool:
        """Whether a pod is unschedulable and its condition does not show it to an autoscaler yet."""
        pod = self._cache.pods.get(key)
        return pod is not None and _is_refusal(decision) and not _is_unschedulable(_scheduled(pod))

    def _lacks_class(self, pod: PodObject) -> bool:
        """Whether a pod's label names no class, or one that its namespace does not permit."""
        label = pod.metadata.labels.get(CLASS_LABEL)
        if label is None or label not in CLASSES:
            return True
        cap = self._cache.max_class_of(pod.metadata.namespace)
        if cap in CLASSES:
            return CLASSES[cap].rank < CLASSES[label].rank
        decided = self._class_of(key_of(pod.metadata))
        return decided is not None and CLASSES[decided].rank < CLASSES[label].rank

    def _submit_label(self, key: str) -> None:
        due = self._rests_until(key)
        if due > time.monotonic() or not self._submit("label", key, self._label_one):
            self._unlabelled[key] = due

    def _rests_until(self, key: str) -> float:
        """Return the monotonic second of a pod's next write after a failure."""
        failure = self._failures.get(key)
        return float("-inf") if failure is None else failure[1]

    def _is_tried_again(self, key: str, fault: ClusterError | None) -> bool:
        """Note the outcome of a write; return whether it failed and a retry makes sense."""
        if fault is None:
            self._failures.pop(key, None)
            return False
        tries = self._failures.get(key, (0, 0.0))[0] + 1
        if tries > MAX_RETRIES or not _may_pass(fault) or key not in self._cache.pods:
            return False
        pause = CONFLICT_SECONDS if _is_conflict(fault) else NOTE_SECONDS
        self._failures[key] = (tries, time.monotonic() + pause * 2.0 ** (tries - 1))
        return True

    def _submit(self, what: str, key: str, write: Callable[[str], Awaitable[None]], *, urgent: bool = False) -> bool:
        return self._dispatcher.submit((what, key), write, namespace_of_key(key), key, urgent=urgent)

    async def _label(self, key: str) -> None:
        pod, labels = self._cache.pods.get(key), self.labels_for(key)
        if pod is None or not labels:
            return
        # With the uid the server refuses the patch if the pod was replaced meanwhile.
        patch = {"metadata": {"uid": pod.metadata.uid, "labels": labels}}
        if self._is_tried_again(key, await self._patch(key, "", patch)):
            self._unlabelled[key] = self._rests_until(key)

    async def _note(self, key: str) -> None:
        pod, decision = self._cache.pods.get(key), self._decisions.get(key)
        if pod is None or decision is None or decision.node is not None or pod.spec.node_name:
            return
        if pod.metadata.uid != decision.uid:
            return
        entry = self._noted[key] = (time.monotonic(), (decision.reason, decision.message))
        metadata, conditions = self._news(pod, self._view.decision(decision))
        if not (metadata or conditions):
            return  # an earlier run wrote it
        # With the version the server refuses the patch if the pod was bound meanwhile.
        patch: dict[str, Any] = {
            "metadata": {"uid": decision.uid, "resourceVersion": pod.metadata.resource_version, **metadata}
        }
        if conditions:
            patch["status"] = {"conditions": conditions}
        fault = await self._patch(key, "/status" if conditions else "", patch)
        if self._is_tried_again(key, fault) and self._noted.get(key) is entry:
            self._noted[key] = (float("-inf") if _is_conflict(fault) else entry[0], ("", ""))
            self._later[key] = self._rests_until(key)

    def _news(self, pod: PodObject, decision: Decision) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the metadata and the conditions that are missing on a pod."""
        metadata: dict[str, Any] = {}
        if not is_noted(pod.metadata.annotations.get(DECISION_ANNOTATION), decision):
            metadata["annotations"] = {DECISION_ANNOTATION: encode(decision)}
        if labels := self.labels_for(decision.key):
            metadata["labels"] = labels
        known = _scheduled(pod)
        if not _is_refusal(decision) or (_is_unschedulable(known) and known.message == decision.message):
            return metadata, []
        changed = known.last_transition_time if known.status == "False" else None
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": UNSCHEDULABLE,
            "message": decision.message,
            "lastTransitionTime": changed or format_timestamp(time.time()),
        }
        return metadata, [condition]

    async def _annotate(self, key: str) -> None:
        pod, decision = self._cache.pods.get(key), self._decisions.get(key)
        if pod is None or decision is None or pod.metadata.uid != decision.uid:
            return
        note = {DECISION_ANNOTATION: encode(self._view.decision(decision))}
        patch = {"metadata": {"uid": decision.uid, "annotations": note}}
        if self._is_tried_again(key, await self._patch(key, "", patch)):
            self._unannotated[key] = self._rests_until(key)

    async def _patch(self, key: str, subresource: str, patch: dict[str, Any]) -> ClusterError | None:
        """Patch a pod; return the error, or None on success."""
        namespace, _, name = key.partition("/")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}{subresource}"
        try:
            # Conditions are a list, and only a strategic patch keeps its other entries.
            await self._client.patch_blindly(path, patch, "strategic" if subresource else "merge")
        except ClusterError as error:
            if not (isinstance(error, ApiError) and error.status in (404, 409)):  # gone, replaced or changed
                self._metrics.notes_failed.inc()
                _LOG.debug("pod %s could not be annotated: %s", key, error)
            return error
        return None


def _is_refusal(decision: Decision) -> bool:
    """Whether a pod was found unschedulable.

    A pod that waits for its turn or its gates was not. A pod that waits for a limit of its namespace was: it may wait
    for ever, and no node would change that.
    """
    return bool(decision.cap) or decision.reason != WaitReason.WAITING_FOR_TURN


def _scheduled(pod: PodObject) -> Condition:
    """Return a pod's condition ``PodScheduled``; an empty one when it has none."""
    return next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), _NO_CONDITION)


def _is_unschedulable(condition: Condition) -> bool:
    return condition.status == "False" and condition.reason == UNSCHEDULABLE


def _is_conflict(fault: ClusterError | None) -> bool:
    """Whether a pod changed, or was replaced, since the patched version."""
    return isinstance(fault, ApiError) and fault.status == 409


def _may_pass(fault: ClusterError) -> bool:
    """Whether the same write may succeed a moment later: there was no answer, or one about the server and not the
    write."""
    return not isinstance(fault, ApiError) or fault.status in (401, 409, 429) or fault.status >= 500

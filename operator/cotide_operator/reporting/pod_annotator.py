"""Writes on pods what was decided about them: class label, decision note, ``PodScheduled`` condition.

Told by the loop which pod has something new; writes through the low-priority lane what the board says at the moment
of writing. What got no answer, or one that may be another in a moment, is written again, ever later and only so often:
an autoscaler goes by the condition, and a node agent by the label. Invariant: a pod is patched only when something a
reader would notice has changed, and at most once per `NOTE_SECONDS`; the class label is written at most once, and over
another one only where that names no class or claims more than its namespace may.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, NamedTuple

from cotide_core.classes import CLASS_LABEL, CLASSES
from cotide_core.errors import ClusterError
from cotide_core.instructions import WaitReason
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.timestamps import format_timestamp
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import ObjectCache, key_of, namespace_of_key
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, encode

_LOG = logging.getLogger(__name__)

NOTE_SECONDS: Final = 10.0
"""Wall seconds between two notes on one waiting pod; chosen: a reader's patience, not an attempt's back-off."""
TRIES_AGAIN: Final = 6
"""After a write that failed, the first `NOTE_SECONDS` later and each after twice as long: they come to ten minutes.
Chosen: an API server is back by then, and pods that can't be written for good do not fill the lane for ever."""
SWEPT: Final = 1_000
"""Pods of one step of a sweep; chosen: some milliseconds of the loop."""


class _Outcome(NamedTuple):
    """What kept a patch from being written, if anything did, and the node of the pod as it is with it."""

    fault: ClusterError | None = None
    node: str = ""


class PodAnnotator:
    """Keeps what pods say about themselves in step with the board."""

    def __init__(
        self,
        client: KubeClient,
        lane: ApiDispatcher,
        mirror: ObjectCache,
        board: DecisionStore,
        telemetry: Metrics,
        *,
        class_of: Callable[[str], str | None],
    ) -> None:
        self._client = client
        self._lane = lane
        self._mirror = mirror
        self._board = board
        self._telemetry = telemetry
        self._class_of = class_of
        self._view = TenantView(mirror)
        self._noted: dict[str, tuple[float, tuple[str, str]]] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        """By pod: writes that failed in a row, and the monotonic second before which none is tried again."""
        self._later: dict[str, None] = {}
        self._unlabelled: dict[str, None] = {}
        self._unannotated: dict[str, None] = {}
        """Pods that `annotate` was asked for, and whose annotation is to be written later."""
        self._overtaken: set[str] = set()
        """Pods whose note was carried out after a binding that nobody has told of yet."""
        self._label_one = self._label
        """Bound once: two objects fewer for each pod, which live until its label is written."""

    def bound(self, key: str) -> None:
        """Say no more why a pod waits; write the class on one that carries none, some time."""
        self._later.pop(key, None)
        self._lane.take_back(("note", key))
        self.label(key)
        if key in self._overtaken:
            self._overtaken.discard(key)
            self.annotate(key)

    def confirmed(self, key: str) -> None:
        """Set right a note that came after a binding of which the watch tells: it may be another's, never reported."""
        self._later.pop(key, None)
        if key in self._overtaken:
            self.annotate(key)

    def label(self, key: str) -> None:
        """Write the class on a pod that carries none, some time."""
        pod = self._mirror.pods.get(key)
        if pod is not None and self._lacks_class(pod):
            self._submit_label(key)

    def note(self, key: str) -> None:
        """Write a waiting pod's decision and condition, if a reader would see a difference."""
        decision = self._board.get(key)
        if decision is None or decision.node is not None:
            return
        wall, words = self._noted.get(key, (float("-inf"), ("", "")))
        if words == (decision.reason, decision.message):
            return
        early = time.monotonic() - wall < NOTE_SECONDS
        if early or self._rests(key) or not self._submit("note", key, self._note):
            self._later[key] = None

    def annotate(self, key: str) -> None:
        """Write the decision about a pod onto it, some time: of another scheduler's, whose condition is that one's, or
        of one that a binding has told already, and a note that was under way has overwritten.
        """
        if self._rests(key) or not self._submit("note", key, self._annotate):
            self._unannotated[key] = None

    def sweep_steps(self) -> Generator[None, None, None]:
        """Take up all that had to wait, the oldest first, in steps; called with each publication.

        All, since a long queue is published once in a minute: by a part of it at a time notes would never catch up.
        """
        kept = (self._later, self.note), (self._unannotated, self.annotate), (self._unlabelled, self.label)
        for waiting, take_up in kept:
            for number, key in enumerate(list(waiting), start=1):
                if key in waiting:  # it may be bound or gone since the last step
                    del waiting[key]
                    take_up(key)
                if number % SWEPT == 0:
                    yield

    def forget(self, key: str) -> None:
        """Drop a pod that is gone."""
        self._noted.pop(key, None)
        self._failures.pop(key, None)
        self._later.pop(key, None)
        self._unlabelled.pop(key, None)
        self._unannotated.pop(key, None)
        self._overtaken.discard(key)

    def _lacks_class(self, pod: PodObject) -> bool:
        """Whether a pod's label tells readers nothing, or a class that its namespace does not allow."""
        label = pod.metadata.labels.get(CLASS_LABEL)
        if label is None or label not in CLASSES:
            return True
        cap = self._mirror.max_class_of(pod.metadata.namespace)
        if cap in CLASSES:
            return CLASSES[cap].rank < CLASSES[label].rank
        decided = self._class_of(key_of(pod.metadata))
        return decided is not None and CLASSES[decided].rank < CLASSES[label].rank

    def _submit_label(self, key: str) -> None:
        if self._rests(key) or not self._submit("label", key, self._label_one):
            self._unlabelled[key] = None

    def _rests(self, key: str) -> bool:
        """Whether a pod was not written a moment ago, and is to be left alone for now."""
        failure = self._failures.get(key)
        return failure is not None and time.monotonic() < failure[1]

    def _is_tried_again(self, key: str, fault: ClusterError | None) -> bool:
        """Note how a write ended; return whether it failed and there is a point in another."""
        if fault is None:
            self._failures.pop(key, None)
            return False
        tries = self._failures.get(key, (0, 0.0))[0] + 1
        if tries > TRIES_AGAIN or not _may_pass(fault) or key not in self._mirror.pods:
            return False
        self._failures[key] = (tries, time.monotonic() + NOTE_SECONDS * 2.0 ** (tries - 1))
        return True

    def _submit(self, what: str, key: str, write: Callable[[str], Awaitable[None]]) -> bool:
        return self._lane.submit((what, key), write, namespace_of_key(key), key)

    async def _label(self, key: str) -> None:
        pod, decided = self._mirror.pods.get(key), self._class_of(key)
        if pod is None or decided is None or not self._lacks_class(pod):
            return
        # Naming the uid makes the server refuse the patch if the pod was replaced meanwhile.
        patch = {"metadata": {"uid": pod.metadata.uid, "labels": {CLASS_LABEL: decided}}}
        if self._is_tried_again(key, (await self._patch(key, "", patch)).fault):
            self._unlabelled[key] = None

    async def _note(self, key: str) -> None:
        pod, decision = self._mirror.pods.get(key), self._board.get(key)
        if pod is None or decision is None or decision.node is not None or pod.spec.node_name:
            return
        if pod.metadata.uid != decision.uid:
            return
        said = self._noted[key] = (time.monotonic(), (decision.reason, decision.message))
        labels: dict[str, str] = {}
        decision = self._view.decision(decision)
        decided = self._class_of(key)
        if decided is not None and self._lacks_class(pod):
            labels[CLASS_LABEL] = decided
        metadata: dict[str, Any] = {"uid": decision.uid, "annotations": {DECISION_ANNOTATION: encode(decision)}}
        if labels:
            metadata["labels"] = labels
        fault, node = await self._patch(key, "", {"metadata": metadata})
        if self._is_over_binding(key, fault, node):
            return
        # A pod that waits for its turn or its gates was not found unschedulable: the condition would be wrong. One that
        # waits for a limit of its namespace may wait for ever, and no node would change that.
        if fault is None and (decision.cap or decision.reason != WaitReason.WAITING_FOR_TURN):
            fault = await self._condition(key, decision)
        if self._is_tried_again(key, fault) and self._noted.get(key) is said:
            self._noted[key] = (said[0], ("", ""))
            self._later[key] = None

    def _is_over_binding(self, key: str, fault: ClusterError | None, node: str) -> bool:
        """Whether a note came, or may have come, after the binding whose annotation it replaced; that is set right."""
        latest = self._board.get(key)
        is_bound = latest is not None and latest.node is not None
        if is_bound and (node or (fault is not None and not isinstance(fault, ApiError))):
            self.annotate(key)
            return True
        if node and key in self._mirror.pods:
            self._overtaken.add(key)
        return bool(node)

    async def _annotate(self, key: str) -> None:
        pod, decision = self._mirror.pods.get(key), self._board.get(key)
        if pod is None or decision is None or pod.metadata.uid != decision.uid:
            return
        note = {DECISION_ANNOTATION: encode(self._view.decision(decision))}
        patch = {"metadata": {"uid": decision.uid, "annotations": note}}
        if self._is_tried_again(key, (await self._patch(key, "", patch)).fault):
            self._unannotated[key] = None

    async def _condition(self, key: str, decision: Decision) -> ClusterError | None:
        pod, latest = self._mirror.pods.get(key), self._board.get(key)
        if pod is None or latest is None or {pod.metadata.uid, latest.uid} != {decision.uid}:
            return None
        if pod.spec.node_name or latest.node is not None:  # bound while the note was written, which may take a minute
            return None
        known = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
        if known is not None and (known.status, known.message) == ("False", decision.message):
            return None
        changed = known.last_transition_time if known is not None and known.status == "False" else None
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": decision.message,
            "lastTransitionTime": changed or format_timestamp(time.time()),
        }
        patch = {"metadata": {"uid": decision.uid}, "status": {"conditions": [condition]}}
        return (await self._patch(key, "/status", patch, strategic=True)).fault

    async def _patch(self, key: str, subresource: str, patch: dict[str, Any], *, strategic: bool = False) -> _Outcome:
        """Patch a pod."""
        namespace, _, name = key.partition("/")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}{subresource}"
        try:
            pod = await self._client.patch(path, patch, "strategic" if strategic else "merge")
        except ClusterError as error:
            if not (isinstance(error, ApiError) and error.status in (404, 409)):  # gone or replaced: nothing to say
                self._telemetry.notes_failed.inc()
                _LOG.debug("pod %s could not be annotated: %s", key, error)
            return _Outcome(error)
        return _Outcome(node=str((pod.get("spec") or {}).get("nodeName") or ""))


def _may_pass(fault: ClusterError) -> bool:
    """Whether the same write may be taken a moment later: no answer, or one about the server and not the write."""
    return not isinstance(fault, ApiError) or fault.status in (401, 429) or fault.status >= 500

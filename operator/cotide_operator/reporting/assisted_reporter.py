"""The extender's answers to kube-scheduler about a pod, in the decision store and on the pod.

`assembly` passes on each answer of the extender on the leading replica. The reporter then follows in the cache whether
kube-scheduler bound the pod. A chosen node is not a binding yet: the answer waits here until the watch shows the
binding. Invariant: the decision store has ``Scheduled`` only for a pod with a binding that the API server accepted.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cotide_core.errors import InputError
from cotide_kube.objects import PodObject
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import Kind, ObjectCache, key_of
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, decode


class AssistedReporter:
    """Publishes the extender's answers.

    Parameters
    ----------
    decisions : store that publishes them.
    annotate : writes the decision from the store onto a pod.
    cache : the reporter subscribes to it.
    """

    def __init__(self, decisions: DecisionStore, annotate: Callable[[str], None], cache: ObjectCache) -> None:
        self._decisions = decisions
        self._annotate = annotate
        self._cache = cache
        self._chosen: dict[str, Decision] = {}
        cache.subscribe(self._follow)

    def answered(self, decision: Decision) -> None:
        """Take an answer: a chosen node, or the refusal of every node."""
        key = decision.key
        if decision.node is not None:
            self._chosen[key] = decision
            self._follow("pods", key)
            return
        self._chosen.pop(key, None)
        pod = self._cache.pods.get(key)
        if pod is None or pod.metadata.uid != decision.uid:  # gone already: no later event would remove it
            return
        before = self._decisions.get(key)
        same = before is not None and before.uid == decision.uid
        if before is not None and same and (before.node, before.message) == (None, decision.message):
            return  # a repeated question with the same answer
        self._decisions.publish(
            msgspec.structs.replace(decision, attempts=before.attempts + 1 if before is not None and same else 1)
        )
        self._annotate(key)

    def _follow(self, kind: Kind, key: str) -> None:
        if kind != "pods" or key not in self._chosen:
            return
        pod, decision = self._cache.pods.get(key), self._chosen[key]
        if pod is None or pod.metadata.uid != decision.uid:
            del self._chosen[key]
        elif pod.spec.node_name:
            del self._chosen[key]
            if pod.spec.node_name != decision.node:
                message = f"kube-scheduler placed it on {pod.spec.node_name}; Cotide had chosen {decision.node}"
                decision = msgspec.structs.replace(decision, node=pod.spec.node_name, message=message)
            self._decisions.publish(decision)
            # Our own binding brought the annotation along; a different one may be left from an earlier refusal.
            if not _says(pod, pod.spec.node_name):
                self._annotate(key)


def _says(pod: PodObject, node: str) -> bool:
    """Whether a pod carries the decision for a node."""
    text = pod.metadata.annotations.get(DECISION_ANNOTATION)
    if text is None:
        return False
    try:
        noted = decode(text, key_of(pod.metadata)).decision
    except InputError:
        return False
    return (noted.uid, noted.node) == (pod.metadata.uid, node)

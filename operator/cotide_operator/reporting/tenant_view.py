"""Removes foreign names from texts and lists for a reader in one namespace: a uid replaces each name.

It is called for every decision that leaves the operator for an object in a namespace. These are events, notes and
conditions of pods, and statuses of Jobs and Workloads. The same rule holds in kube-scheduler: its event names the uid
of the preemptor, and no name (``Preempted by pod <uid> on node <name>``). Names stay in the log, the ledger, the
metrics and ``/debug``, which belong to the administrator. Nodes belong to no namespace and keep their names. Invariant:
no result contains the name of a pod, a Workload or a namespace other than the reader's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from cotide_core.instructions import Evict, EvictCause, NodeVerdict
from cotide_operator.cache.decision_store import Decision
from cotide_operator.cache.object_cache import ObjectCache


class TenantView:
    """Decisions as the namespace of their pod may read them.

    Parameters
    ----------
    cache : source of the uids.
    """

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache

    def decision(self, decision: Decision) -> Decision:
        """Return a decision for readers of its pod; the same object when it contains no foreign name."""
        if not (decision.refused or decision.victims):
            return decision
        namespace = decision.key.partition("/")[0]
        message = self.sentence(decision.message, decision.refused, namespace)
        refused = tuple(self.verdict(node_verdict, namespace) for node_verdict in decision.refused)
        victims = tuple(self._pod(key, namespace) for key in decision.victims)
        if (message, refused, victims) == (decision.message, decision.refused, decision.victims):
            return decision
        return msgspec.structs.replace(decision, message=message, refused=refused, victims=victims)

    def sentence(self, message: str, refused: Iterable[NodeVerdict], namespace: str) -> str:
        """Return a sentence about a pod of a namespace without names of foreign services.

        Parameters
        ----------
        refused : the verdicts in the sentence.
        """
        for node_verdict in refused:
            if node_verdict.service:
                message = message.replace(node_verdict.message, self.verdict(node_verdict, namespace).message)
        return message

    def verdict(self, verdict: NodeVerdict, namespace: str) -> NodeVerdict:
        """Return a verdict for readers in a namespace."""
        service = verdict.service
        if not service or service.partition("/")[0] == namespace:
            return verdict
        return replace(verdict, message=verdict.message.replace(service, self._service(service)), service="")

    def eviction(self, evict: Evict) -> tuple[str, str]:
        """Return the reason and the sentence of the event about an eviction; the former as in kube-scheduler."""
        namespace = evict.key.partition("/")[0]
        if evict.cause in (EvictCause.LATENCY, EvictCause.LATENCY_RISES, EvictCause.LATENCY_AT_RISK):
            reason, service = evict.reason, evict.service
            if service and service.partition("/")[0] != namespace:
                reason = reason.replace(service, self._service(service))
            return "Evicted", f"Evicted from node {evict.node}: {reason}"
        if evict.cause is not EvictCause.PREEMPTED:
            return "Evicted", f"Evicted from node {evict.node}: {evict.reason}"
        reason, nominee = evict.reason, evict.nominee
        if nominee.partition("/")[0] != namespace:
            reason, nominee = reason.replace(f"pod {nominee};", f"pod {evict.nominee_uid};"), evict.nominee_uid
        return "Preempted", f"Preempted by pod {nominee} on node {evict.node}: {reason}"

    def _service(self, key: str) -> str:
        workload = self._cache.workloads.get(key)
        named = f" ({workload.metadata.uid})" if workload is not None else ""
        return f"a Workload of another namespace{named}"

    def _pod(self, key: str, namespace: str) -> str:
        if key.partition("/")[0] == namespace:
            return key
        pod = self._cache.pods.get(key)
        return pod.metadata.uid if pod is not None else "a pod of another namespace"

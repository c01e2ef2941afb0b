"""The verbs of the extender: from the bytes of a request to the bytes of its answer.

`server` calls them in the extender's thread. A request waits only until the watch delivers its pod, and for a short
time only; ``bind`` also waits for the API server. From `rest` to the answer no other code runs. The operator receives
each decision (`Decided`) and puts it into the engine's next cycle, so that the ledger and the annotations of pods
contain it.

Invariants: A pod of another scheduler keeps all its nodes. A malformed request changes nothing. Only a pod that the
watch shows waiting, without a gate, reserves room. No answer names a service of another namespace than the pod's.

If clients show no certificate, any client that reaches the port can send requests. ``prioritize`` then reserves
nothing: the score gives the best node, and not whether the pod fits there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

from cotide_core.errors import ClusterError, InputError
from cotide_core.events import BindRefused, Pod, PodAssumed
from cotide_core.instructions import Bind, WaitReason
from cotide_core.placement.refusal_messages import overall
from cotide_core.reclaiming.extender_advisor import NodeAnswer, waits_for_a_node
from cotide_kube.answers import Answer
from cotide_operator.cache.decision_store import Decision
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.webhooks.extender import wire
from cotide_operator.webhooks.extender.cluster_follower import ClusterFollower

SCHEDULED: Final = "Scheduled"
Outcome = Literal["chosen", "passed", "refused", "scored", "left alone", "unseen", "bound", "malformed", "failed"]
Decided = PodAssumed | BindRefused | Decision
PostBinding = Callable[[Bind], Awaitable[Answer]]
UNSEEN_SECONDS: Final = 0.1
"""Wall seconds that an answer waits until the watch delivers the pod. Chosen: kube-scheduler's watch and ours are
milliseconds apart, and an answer about a pod that the watch never delivers is worth no more."""
UNSEEN_BIND_SECONDS: Final = 2.0
"""The same for a binding, which delays no other request. Chosen."""
POLL_SECONDS: Final = 0.002
REASONS_KEPT: Final = 20_000
"""Most stored choices for pods until they are bound, the latest; chosen: some 10 MB."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The body of a response, and its outcome for the metrics."""

    body: bytes
    outcome: Outcome


class Verbs:
    """Answers kube-scheduler.

    Parameters
    ----------
    follower : after `begin`.
    scheduler_names : the extender handles the pods of these schedulers.
    view : removes the names of other namespaces from answers.
    emit : receives events for the operator, in the extender's thread.
    bind : posts a binding; None if the verb is not served.
    knows_clients : whether each client shows a certificate, so that kube-scheduler is the sender.
    """

    def __init__(
        self,
        follower: ClusterFollower,
        scheduler_names: Collection[str],
        view: TenantView,
        emit: Callable[[Decided], None],
        bind: PostBinding | None,
        *,
        knows_clients: bool = False,
    ) -> None:
        self._follower = follower
        self._names = frozenset(scheduler_names)
        self._view = view
        self._emit = emit
        self._bind = bind
        self._knows_clients = knows_clients
        self._reasons: dict[str, tuple[str, Decision]] = {}
        """Uid and decision of the pods that received a node, until they are bound."""

    async def filter(self, body: bytes) -> Reply:
        """Return the nodes that a pod may use; raises InputError."""
        args = wire.read(wire.NodeArgs, body)
        names, asked = wire.node_names(args), wire.asked_pod(args.pod)
        if asked.spec.scheduler_name not in self._names:
            return Reply(wire.encode(wire.FilterResult(names)), "left alone")
        pod, seen = await self._pod(asked, args)
        now = self.rest()
        self._release(pod.key, "kube-scheduler asks again")
        answer = self._follower.advisor.filter(pod, names, now)
        self._decide(pod, answer, now, seen=seen)
        outcome: Outcome = "refused" if not answer.nodes else "chosen" if answer.reason else "passed"
        namespace = asked.metadata.namespace
        words = {verdict.message: self._view.verdict(verdict, namespace).message for verdict in answer.verdicts}
        result = wire.FilterResult(list(answer.nodes), {name: words[why] for name, why in answer.refused.items()})
        return Reply(wire.encode(result), outcome if seen or not answer.nodes else "unseen")

    async def prioritize(self, body: bytes) -> Reply:
        """Return the scores of nodes, 0 for pods of other schedulers; raises InputError."""
        args = wire.read(wire.NodeArgs, body)
        names, asked = wire.node_names(args), wire.asked_pod(args.pod)
        if asked.spec.scheduler_name not in self._names:
            return Reply(wire.encode([wire.HostPriority(name, 0) for name in names]), "left alone")
        pod, seen = await self._pod(asked, args)
        now = self.rest()
        scores = self._follower.advisor.scores(pod, names, now)
        if seen and names and self._knows_clients:
            # The best node is the likeliest, until the binding or the watch shows the actual one.
            self._assume(pod, names[max(range(len(names)), key=scores.__getitem__)], now)
        found = [wire.HostPriority(name, score) for name, score in zip(names, scores, strict=True)]
        return Reply(wire.encode(found), "scored")

    async def preempt(self, body: bytes) -> Reply:
        """Return the nodes where kube-scheduler may evict its victims; raises InputError."""
        args = wire.read(wire.PreemptionArgs, body)
        wanted, asked = wire.victims(args), wire.asked_pod(args.pod)
        if asked.spec.scheduler_name not in self._names:
            return Reply(wire.encode(wire.PreemptionResult(wanted)), "left alone")
        pod, _ = await self._pod(asked, args)
        now = self.rest()
        uids = {name: [meta_pod.uid for meta_pod in group.pods or ()] for name, group in wanted.items()}
        left = self._follower.advisor.preempt(pod, uids, now)
        result = wire.PreemptionResult({name: wanted[name] for name in left})
        return Reply(wire.encode(result), "passed" if left or not wanted else "refused")

    async def bind(self, body: bytes) -> Reply:
        """Bind a pod to the node that kube-scheduler chose; raises InputError."""
        args = wire.read(wire.BindingArgs, body)
        if self._bind is None:
            raise InputError("is not served: set extender.binds, or take bindVerb away", field="bind")
        pod = await self._seen(args.key, args.uid, UNSEEN_BIND_SECONDS)
        now = self.rest()
        if pod is None:
            return _failed(f"pod {args.key} with uid {args.uid} is not known to Cotide")
        if pod.ours:
            return _failed(f"pod {args.key} is Cotide's own to bind")
        if pod.node is None:
            self._assume(pod, args.node, now)
        decision = self._decision_on(pod, args.node)
        reason = "kube-scheduler chose among the nodes that Cotide let pass" if decision is None else decision.message
        try:
            answer = await self._bind(Bind(args.key, args.uid, args.node, reason))
        except ClusterError as error:
            return _failed(str(error))
        if answer.ok:
            return Reply(wire.encode(wire.BindingResult()), "bound")
        if not answer.uncertain:
            # After a lost answer the outcome is unknown: the room stays reserved until the watch shows it, or it
            # expires.
            self._release(pod.key, f"the binding was refused ({answer.code})")
        return _failed(f"the API server refused the binding ({answer.code} {answer.reason}): {answer.message}")

    def rest(self) -> float:
        """Apply pending events, expire unconfirmed assumptions, and return the time."""
        now = self._follower.catch_up()
        for given_up in self._follower.advisor.expire(now):
            self._emit(given_up)
            self._reasons.pop(given_up.key, None)
        return now

    async def _pod(self, asked: wire.AskedPod, args: wire.NodeArgs | wire.PreemptionArgs) -> tuple[Pod, bool]:
        """Return a pod, and whether the watch delivered it; a pod known from the request only is never assumed."""
        pod = await self._seen(asked.key, asked.metadata.uid, UNSEEN_SECONDS)
        if pod is not None:
            return pod, True
        return self._follower.translated(wire.whole_pod(args.pod), self.rest()), False

    async def _seen(self, key: str, uid: str, seconds: float) -> Pod | None:
        """Return a pod from the watch, which may lag a moment behind kube-scheduler's."""
        self.rest()
        deadline = time.monotonic() + seconds
        while (pod := self._follower.pod(key, uid)) is None and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            self.rest()
        return pod

    def _decide(self, pod: Pod, answer: NodeAnswer, now: float, *, seen: bool) -> None:
        if not seen or not waits_for_a_node(pod):
            return
        if len(answer.nodes) == 1:
            self._assume(pod, answer.nodes[0], now)
        if answer.nodes and not answer.reason:
            return
        node = answer.nodes[0] if answer.nodes else None
        reason = SCHEDULED if node is not None else overall(answer.verdicts).value
        if node is None and answer.verdicts and answer.verdicts[0].reason is WaitReason.WAITING_FOR_TURN:
            reason = WaitReason.WAITING_FOR_TURN.value
        words = answer.reason or "kube-scheduler was refused every node that it found feasible: " + ", ".join(
            f"{verdict.nodes} {verdict.message}" for verdict in answer.verdicts
        )
        decision = Decision(pod.key, pod.uid, now, node, reason, words, answer.verdicts, answer.forecast, attempts=1)
        self._emit(decision)
        if node is not None and self._bind is not None:
            self._reasons[pod.key] = (pod.uid, decision)
            if len(self._reasons) > REASONS_KEPT:
                del self._reasons[next(iter(self._reasons))]

    def _decision_on(self, pod: Pod, node: str) -> Decision | None:
        uid, decision = self._reasons.pop(pod.key, ("", None))
        return decision if decision is not None and uid == pod.uid and decision.node == node else None

    def _assume(self, pod: Pod, node: str, now: float) -> None:
        assumed = self._follower.advisor.assume(pod, node, now)
        if assumed is not None:
            self._emit(assumed)

    def _release(self, key: str, why: str) -> None:
        released = self._follower.advisor.release(key, why)
        if released is not None:
            self._emit(released)


def _failed(why: str) -> Reply:
    return Reply(wire.encode(wire.BindingResult(why)), "failed")

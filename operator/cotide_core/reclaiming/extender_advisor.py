"""Answers kube-scheduler: which of its feasible nodes Cotide allows for a pod, and which is best.

Called by the operator's extender with a state of its own, which receives the same events as an engine's state::

    events -> ClusterState.apply -> Snapshot -> capacity of the policy -> guard (one call) -> answer
                     ^                                                                          |
                     `---------- PodAssumed until the watch confirms, or BindRefused <----------'

kube-scheduler has checked everything that a pod demands of a node itself (taints, affinity, volumes, spread), so the
advisor skips it. It checks requests, ports, exclusive services, refusals of kubelets, cordons, limits of namespaces,
slack and latency risks. Batch and gratis pods get *one* node, the engine's choice. So the place of the pod is known at
once, and a burst can't overfill the node. Online pods get every node that has room, and kube-scheduler chooses. A
latency risk lowers the score of a node, and never keeps an online pod waiting.

Plans over time and claims on freed space belong to the engine; the advisor looks only at the present. Invariants: an
answer names only nodes of the question. Only `expire`, `take` and a new answer end an assumption. Same events and same
questions give the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.events import BindRefused, Event, Pod, PodAssumed, PodDeleted, PodPhase, PodUpserted, Toleration
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import NO_FORECAST, Forecast, NodeVerdict, WaitReason
from cotide_core.kernels.array_types import Floats
from cotide_core.placement.bind_instructions import reason_of
from cotide_core.placement.feasibility import FITS
from cotide_core.placement.placer import OpenNodes, Placement, Placer, Policy
from cotide_core.placement.wait_instructions import risk_of
from cotide_core.queueing.capped_pods import CappedPods
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.reclaiming.registry import capacity_of
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import Shape, ShapeTable
from cotide_core.state.snapshot import Snapshot

MAX_SCORE: Final = 10
"""Highest score of a node (k8s.io/kube-scheduler/extender/v1, MaxExtenderPriority)."""
SHAPES_KEPT: Final = 4096
"""Shapes that are remembered before all are dropped (chosen: some MB)."""
UNKNOWN_NODE: Final = "node(s) are not known to Cotide yet"
CORDONED: Final = "node(s) were cordoned by Cotide after overloads"
_EVERYTHING: Final = (Toleration("", "Exists", "", ""),)
"""kube-scheduler has looked at taints."""


class _Refusal(NamedTuple):
    """Why one node is refused."""

    message: str
    reason: WaitReason
    service: str = ""
    """The Workload with the limit that would break, when that is the reason."""


_UNKNOWN: Final = _Refusal(UNKNOWN_NODE, WaitReason.NO_MATCHING_NODE)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The answer about one pod.

    Attributes
    ----------
    nodes : allowed for the pod, best first; one for a batch or gratis pod.
    refused : reasons by name of the node; empty where one was chosen.
    reason : the choice in a sentence; empty where kube-scheduler chooses.
    verdicts : why other nodes were refused, in groups.
    forecast : of the choice, or of the nearest refusal.
    """

    nodes: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    verdicts: tuple[NodeVerdict, ...] = ()
    forecast: Forecast = NO_FORECAST


def waits_for_a_node(pod: Pod) -> bool:
    """Return whether kube-scheduler may place a pod: one that is bound, gated, ending or finished takes no room."""
    waits = pod.node is None and pod.phase is PodPhase.PENDING
    return waits and not pod.gates and not pod.terminating


class ExtenderAdvisor:
    """Answers questions about nodes.

    Parameters
    ----------
    config : of the engine next to it.
    policy : built for this advisor alone; its plan and its monitor are unused.
    forecaster : of latency risks; `use` exchanges it.
    state : empty at first; only the advisor writes it.
    timeout_seconds : after which an unconfirmed assumption is given up.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        policy: Policy,
        forecaster: QosForecaster,
        state: ClusterState,
        *,
        timeout_seconds: float,
    ) -> None:
        self.state = state
        self._config = config
        self._qos = forecaster
        self._timeout = timeout_seconds
        self._placer = Placer(replace(policy, plan=None, monitor=False), seed=config.seed)
        self._shapes = ShapeTable(by_class=True, by_job=policy.tells_jobs_apart, by_peers=False)
        self._capacity = capacity_of(config, state, self._placer, {})
        self._caps = CappedPods(state.namespaces)
        self._snapshot = Snapshot.of(state)
        self._resources_seen = state.columns.resource_generation
        self._assumed: dict[str, PodAssumed] = {}

    @property
    def assumed(self) -> int:
        """How many pods count on a node before the watch confirms them."""
        return len(self._assumed)

    def take(self, events: Iterable[Event]) -> None:
        """Apply events."""
        for event in events:
            self.state.apply(event)
            match event:
                case PodUpserted(pod):
                    record = self.state.record(pod.key)
                    if record is None or record.assumed_seconds is None:
                        self._assumed.pop(pod.key, None)
                case PodDeleted(key):
                    if self.state.record(key) is None:
                        self._assumed.pop(key, None)
                case _:
                    pass

    def use(self, forecaster: QosForecaster) -> None:
        """Use another forecaster from now on."""
        self._qos = forecaster
        self._placer.forget_answers()

    def assume(self, pod: Pod, node: str, now: float) -> PodAssumed | None:
        """Count a pod on a node; None if it does not wait for one (see `waits_for_a_node`), or is not known here."""
        record = self.state.record(pod.key)
        if record is None or record.pod.uid != pod.uid or not waits_for_a_node(record.pod):
            return None
        if node not in self.state.columns.row_of:
            return None
        assumed = PodAssumed(pod.key, pod.uid, node, now)
        self.state.apply(assumed)
        self._assumed.pop(pod.key, None)
        self._assumed[pod.key] = assumed
        return assumed

    def release(self, key: str, why: str) -> BindRefused | None:
        """Give up the assumption about a pod; None if it had none."""
        assumed = self._assumed.pop(key, None)
        if assumed is None:
            return None
        refused = BindRefused(assumed.key, assumed.uid, assumed.node, 0, why, retry=False)
        self.state.apply(refused)
        return refused

    def expire(self, now: float) -> list[BindRefused]:
        """Give up the assumptions that stayed unconfirmed for too long."""
        due = []
        for key, assumed in self._assumed.items():  # oldest first
            if assumed.at_seconds + self._timeout > now:
                break
            due.append(key)
        given_up = [self.release(key, "kube-scheduler did not bind it in time") for key in due]
        return [bind_refused for bind_refused in given_up if bind_refused is not None]

    def filter(self, pod: Pod, names: Sequence[str], now: float) -> NodeAnswer:
        """Return the nodes that a pod may have; its earlier assumption must be released before."""
        snapshot, entry = self._prepare(pod, now)
        if (capped := self._caps.over_held(entry)) is not None:
            verdict = NodeVerdict(len(names), capped.message, WaitReason.WAITING_FOR_TURN)
            return NodeAnswer((), dict.fromkeys(names, capped.message), verdicts=(verdict,))
        rows, unknown = self._rows(names)
        among = self._among(snapshot, entry, rows, now)
        if entry.shape.online:
            return self._all_with_room(snapshot, entry, names, among, unknown, now)
        found = self._placer.place_among(among, snapshot, entry.shape, self._qos)
        if found.row < 0:
            why = self._why_not(snapshot, entry, rows, among, now)
            return _none_of(why | unknown, self._forecast(found))
        reason = reason_of(found, self._placer.policy.name, self._config.qos_risk_threshold)
        return NodeAnswer((snapshot.name(found.row),), {}, reason, found.refused, self._forecast(found))

    def scores(self, pod: Pod, names: Sequence[str], now: float) -> list[int]:
        """Return 0 (worst) to `MAX_SCORE` for each node: by risk where the policy ranks by risk, else by its rank.

        For an online pod under a guard, nodes that pass are in the upper half; below them the least risky is best.
        """
        snapshot, entry = self._prepare(pod, now)
        row_of = self.state.columns.row_of
        rows = np.array([row_of.get(name, -1) for name in names], np.intp)
        known = rows >= 0
        worth = np.zeros(len(rows))
        if known.any():
            worth[known] = self._worth(snapshot, entry, rows[known])
        scored: list[int] = np.rint(worth * MAX_SCORE).astype(np.int64).tolist()
        return scored

    def _worth(self, snapshot: Snapshot, entry: QueuedPod, rows: NDArray[np.intp]) -> Floats:
        """Return (K,) how good each row is for a pod, 0 to 1."""
        policy, accepted = self._placer.policy, self._placer.accepted
        worth = self._shares(self._capacity.open_nodes(snapshot, entry).scores[rows])
        risk = self._placer.probabilities(snapshot, entry.shape, rows, self._qos)
        if policy.lowest_risk:
            worth = 0.5 * (1.0 - np.minimum(1.0, risk / max(accepted, 1e-9))) + 0.5 * worth
        if policy.guard is None or not entry.shape.online:
            return worth
        return np.where(risk <= accepted, 0.5 + 0.5 * worth, 0.5 * (1.0 - risk))

    def preempt(self, pod: Pod, victims: Mapping[str, Sequence[str]], now: float) -> list[str]:
        """Return the nodes where kube-scheduler may evict its chosen victims for a pod.

        Parameters
        ----------
        victims : uids by node.

        Notes
        -----
        A batch or gratis pod makes no online pod leave, and a pod stays if its owner refuses disruption. If a latency
        limit would break with the pod, its node is freed only for an online pod. A smaller mix is no riskier, so a pod
        that passes now passes then.
        """
        snapshot, entry = self._prepare(pod, now)
        row_of = self.state.columns.row_of
        known = [(name, uids) for name, uids in victims.items() if name in row_of]
        open_to = [name for name, uids in known if self._may_leave(entry, row_of[name], uids, now)]
        if not open_to or entry.shape.online:
            return open_to
        rows = np.array([row_of[name] for name in open_to], np.intp)
        passes = self._placer.probabilities(snapshot, entry.shape, rows, self._qos) <= self._placer.accepted
        return [name for name, good in zip(open_to, passes.tolist(), strict=True) if good]

    def _may_leave(self, entry: QueuedPod, row: int, uids: Sequence[str], now: float) -> bool:
        wanted = set(uids)
        for record in self.state.records_on(row):
            if record.pod.uid not in wanted:
                continue
            online = record.pod.workload_class is WorkloadClass.ONLINE
            if record.pod.is_protected(now) or (online and not entry.shape.online):
                return False
        return True

    def _prepare(self, pod: Pod, now: float) -> tuple[Snapshot, QueuedPod]:
        """Return the state as it is now, and the pod without what kube-scheduler has checked."""
        self._placer.renew()
        self.state.make_columns(pod.requests)
        if self.state.columns.resource_generation != self._resources_seen:
            self._resources_seen = self.state.columns.resource_generation
            self._shapes.drop_stale(self.state)
        if len(self._shapes) > SHAPES_KEPT or self.state.columns.types_refused:
            self._shapes.prune(set())
            self._placer.forget(set())
            if self.state.columns.release_types(set()):
                self._placer.forget_answers()
        self.state.reopen(now)
        self.state.relieved.clear()
        self.state.eased.clear()
        self.state.namespaces.eased.clear()
        bare = pod._replace(
            node_selector=(), node_terms=(), volume_terms=(), tolerations=_EVERYTHING, unsupported=(), gates=(),
            blocked="", open_claims=(), attachments=(),
        )  # fmt: skip
        entry = QueuedPod(bare, self._shapes.of(bare, self.state), 0)
        self._capacity.begin(now, self._qos)
        if not self._snapshot.shows_all:
            self._snapshot = Snapshot.of(self.state)
        return self._snapshot, entry

    def _rows(self, names: Sequence[str]) -> tuple[NDArray[np.intp], dict[str, _Refusal]]:
        row_of = self.state.columns.row_of
        rows = [row_of.get(name, -1) for name in names]
        unknown = {name: _UNKNOWN for name, row in zip(names, rows, strict=True) if row < 0}
        return np.array([row for row in rows if row >= 0], np.intp), unknown

    def _among(self, snapshot: Snapshot, entry: QueuedPod, rows: NDArray[np.intp], now: float) -> OpenNodes:
        """Return those of the rows that have room for a pod."""
        found = self._capacity.open_nodes(snapshot, entry)
        asked = np.zeros(snapshot.size, np.bool_)
        asked[rows] = True
        if not entry.shape.online:
            asked[[row for row in rows.tolist() if self._cordoned(snapshot, row, now)]] = False
        return OpenNodes(found.rows & asked, found.scores, found.refused)

    @staticmethod
    def _cordoned(snapshot: Snapshot, row: int, now: float) -> bool:
        """Whether the engine's monitor keeps batch and gratis pods off a node, as written on the node."""
        node = snapshot.nodes[row]
        until = None if node is None else node.cordoned_until_seconds
        return until is not None and until > now

    def _all_with_room(
        self,
        snapshot: Snapshot,
        entry: QueuedPod,
        names: Sequence[str],
        among: OpenNodes,
        unknown: dict[str, _Refusal],
        now: float,
    ) -> NodeAnswer:
        """Return every node that has room for an online pod; `scores` holds the guard's view of them."""
        taken = {snapshot.name(row) for row in np.flatnonzero(among.rows).tolist()}
        rest = np.array([self.state.columns.row_of[n] for n in names if n not in taken and n not in unknown], np.intp)
        why = self._why_not(snapshot, entry, rest, among, now) | unknown
        return replace(_none_of(why, NO_FORECAST), nodes=tuple(name for name in names if name in taken))

    def _why_not(
        self, snapshot: Snapshot, entry: QueuedPod, rows: NDArray[np.intp], among: OpenNodes, now: float
    ) -> dict[str, _Refusal]:
        """Return the reason for each refused row, by name of the node; the guard was asked about those with room."""
        codes = self._placer.candidates(snapshot, entry.shape.fit).codes
        reasons = self._placer.feasibility.reasons
        at_risk = self._at_risk(entry.shape, rows[among.rows[rows]])
        slack = _Refusal("node(s) have no room", WaitReason.INSUFFICIENT_SLACK)
        if among.refused:
            slack = _Refusal(among.refused[-1].message, among.refused[-1].reason)
        why: dict[str, _Refusal] = {}
        for row in rows.tolist():
            if codes[row] != FITS:
                refusal = _Refusal(reasons.messages[codes[row]], reasons.kinds[codes[row]])
            elif not entry.shape.online and self._cordoned(snapshot, row, now):
                refusal = _Refusal(CORDONED, WaitReason.INSUFFICIENT_SLACK)
            else:
                refusal = at_risk.get(row, slack)
            why[snapshot.name(row)] = refusal
        return why

    def _at_risk(self, shape: Shape, rows: NDArray[np.intp]) -> dict[int, _Refusal]:
        """Return the refusal of each row that the guard refused: one for each service, with its lowest risk."""
        guard = self._placer.policy.guard
        if guard is None or not len(rows):
            return {}
        probabilities, services, _ = guard.at_risk(shape, rows)
        least: dict[str, float] = {}
        for service, probability in zip(services, probabilities.tolist(), strict=True):
            least[service] = min(probability, least.get(service, 1.0))
        return {
            row: _Refusal(
                f"node(s) would break the latency limit of {service} (p={least[service]:.2f})",
                WaitReason.QOS_AT_RISK,
                service,
            )
            for row, service in zip(rows.tolist(), services, strict=True)
        }

    def _forecast(self, placement: Placement) -> Forecast:
        if placement.probability is None:
            return NO_FORECAST
        return risk_of(placement.probability, placement.basis, self._qos.model_id)

    @staticmethod
    def _shares(scores: Floats) -> Floats:
        """Return scores as shares between the lowest and the highest; 1 for all if they are equal."""
        finite = np.where(np.isfinite(scores), scores, np.nan)
        if np.isnan(finite).all():
            return np.zeros(len(scores))
        low, high = float(np.nanmin(finite)), float(np.nanmax(finite))
        shares = np.ones(len(scores)) if high <= low else (finite - low) / (high - low)
        return np.where(np.isnan(finite), 0.0, shares)


def _none_of(why: Mapping[str, _Refusal], forecast: Forecast) -> NodeAnswer:
    """Return the answer that names no node, with the refusals of those that were asked about in groups."""
    groups: dict[_Refusal, list[str]] = {}
    for name, refusal in why.items():
        groups.setdefault(refusal, []).append(name)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    verdicts = tuple(
        NodeVerdict(len(nodes), one.message, one.reason, nodes[0], service=one.service) for one, nodes in ordered
    )
    return NodeAnswer((), {name: one.message for name, one in why.items()}, verdicts=verdicts, forecast=forecast)

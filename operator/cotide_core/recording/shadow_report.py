"""The report of a ledger of shadow mode: the results of another scheduler, and the decisions of Cotide.

Called by ``cotide report``. A ledger holds the events and the hypothetical decisions of the engine. The report applies
the events again to a state without hypothetical placements. It checks each placement by the engine's own rules, with
the cluster as it was at that moment: would this node have been refused, and why? Everything is computed from the ledger
and the models that it names, so that the same ledger gives the same report.

Unknowable facts are left out. A slot over its limit next to a pod that would have been refused there may have had other
reasons, and one other decision would have changed the cluster. The figures therefore compare single decisions, and not
two histories.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cotide_core.events import Event, ModelsChanged, Pod, PodDeleted, PodPhase, PodUpserted, ServiceSampled
from cotide_core.forecasts import ModelCatalogue
from cotide_core.instructions import Bind
from cotide_core.policies import build_policy
from cotide_core.reclaiming.extender_advisor import ExtenderAdvisor
from cotide_core.recording.ledger import LedgerEntry, read_ledger
from cotide_core.state.cluster_state import ClusterState

_ENDED = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
MOMENT_SECONDS = 1.0
"""A pod that Cotide would have started earlier by at least this time counts as started earlier; timestamps are whole
seconds.
"""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long pods waited for a node, in seconds."""

    pods: int
    mean: float
    p50: float
    p95: float


@dataclass(slots=True)
class ShadowReport:
    """The observations and the hypothetical decisions.

    Attributes
    ----------
    placed : pods that the cluster's scheduler put on a node.
    refused : of these, placements that Cotide would have refused, by the kind of reason.
    services : predicted breaks of a limit, by service: placements at which one was predicted.
    judged, brier, mean_probability, broken_share : of placements next to a service: their number, the Brier score of
        the predicted probability that a limit there breaks in the following slot, its mean, and the share of broken
        limits.
    slots_over, slots_over_beside_refused : slots with a service measured over its limit, and those of them next to a
        pod that Cotide would have refused there to protect a limit.
    earlier_pods, earlier_core_seconds, earlier_at_once_millicores : pods that Cotide would have started earlier, or at
        all; their cpu requests, times the time between; and the maximum at one moment.
    waits, waits_as_if : of the same pods.
    unseen : pods that were bound before Cotide looked, so that their wait is the same in both.
    unsupported : pods with constraints that Cotide alone does not support: they would go through the extender.
    """

    seconds: float = 0.0
    policy: str = ""
    placed: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    services: dict[str, int] = field(default_factory=dict)
    judged: int = 0
    brier: float | None = None
    mean_probability: float | None = None
    broken_share: float | None = None
    slots_over: int = 0
    slots_over_beside_refused: int = 0
    earlier_pods: int = 0
    earlier_core_seconds: float = 0.0
    earlier_at_once_millicores: int = 0
    waits: Waits = Waits(0, 0.0, 0.0, 0.0)
    waits_as_if: Waits = Waits(0, 0.0, 0.0, 0.0)
    unseen: int = 0
    unsupported: int = 0


@dataclass(slots=True)
class _Judged:
    """A placement next to a service, until the following slot is over."""

    at: float
    probability: float
    services: frozenset[str]
    broken: bool = False


@dataclass(slots=True)
class _Seen:
    """One pod of the other scheduler."""

    pod: Pod
    decided: float | None = None
    bound: float | None = None


class ShadowAccount:
    """Adds up one ledger.

    Parameters
    ----------
    slot_seconds : of a service's slots.
    """

    def __init__(self, advisor: ExtenderAdvisor, catalogue: ModelCatalogue, policy: str, slot_seconds: float) -> None:
        self._advisor = advisor
        self._catalogue = catalogue
        self._slot = slot_seconds
        self._report = ShadowReport(policy=policy)
        self._pods: dict[str, _Seen] = {}
        self._gone: list[_Seen] = []
        self._refused_on: dict[str, set[str]] = {}
        """Uids of pods on nodes where Cotide would have refused them to protect a limit, by node."""
        self._open: list[_Judged] = []
        self._closed: list[_Judged] = []
        self._slots: dict[tuple[str, int], bool] = {}
        """(service's pod, slot) over its limit: whether such a pod was on the same node."""
        self._begun: float | None = None
        self._now = 0.0

    def take(self, entry: LedgerEntry) -> None:
        """Take one cycle: its events, then the decisions on them."""
        self._begun = entry.now if self._begun is None else self._begun
        self._now = entry.now
        for event in entry.events:
            self._event(event)
        for instruction in entry.instructions:
            seen = self._pods.get(instruction.uid)
            if isinstance(instruction, Bind) and seen is not None and seen.decided is None:
                seen.decided = entry.now
        horizon = entry.now - self._slot
        while self._open and self._open[0].at < horizon:
            self._closed.append(self._open.pop(0))

    def report(self) -> ShadowReport:
        """Return the report."""
        report, everybody = self._report, [*self._gone, *self._pods.values()]
        report.seconds = self._now - (self._now if self._begun is None else self._begun)
        report.unsupported = sum(bool(seen.pod.unsupported) for seen in everybody)
        report.unseen = sum(seen.decided is None and seen.bound is not None for seen in everybody)
        started = [seen for seen in everybody if seen.bound is not None]
        report.waits = _waits([max(0.0, (seen.bound or 0.0) - seen.pod.created_seconds) for seen in started])
        report.waits_as_if = _waits([max(0.0, _first(seen) - seen.pod.created_seconds) for seen in started])
        self._count_earlier(everybody)
        report.slots_over = len(self._slots)
        report.slots_over_beside_refused = sum(self._slots.values())
        judged = self._closed
        report.judged = len(judged)
        if judged:
            report.brier = sum((placement.probability - placement.broken) ** 2 for placement in judged) / len(judged)
            report.mean_probability = sum(placement.probability for placement in judged) / len(judged)
            report.broken_share = sum(placement.broken for placement in judged) / len(judged)
        return report

    def _event(self, event: Event) -> None:
        match event:
            case ModelsChanged(qos, _):
                self._advisor.use(self._catalogue.qos(qos))
            case ServiceSampled(key, _, latency):
                self._advisor.take((event,))
                if latency is not None:
                    self._measured(key, latency)
            case PodUpserted(pod):
                self._pod(pod)
                self._advisor.take((event,))
            case PodDeleted(_, uid):
                self._end(uid)
                self._advisor.take((event,))
            case _:
                self._advisor.take((event,))

    def _pod(self, pod: Pod) -> None:
        if pod.phase in _ENDED:
            self._end(pod.uid)
            return
        seen = self._pods.get(pod.uid)
        if seen is None:
            if not pod.ours or (pod.node is not None and not self._is_new(pod)):
                return  # of another scheduler, or older than the shadow's first cycle
            seen = self._pods[pod.uid] = _Seen(pod)
        if pod.node is not None and seen.bound is None:
            seen.bound = max(self._now, pod.created_seconds)
            self._place(seen.pod if seen.pod.node is None else pod, pod.node)

    def _is_new(self, pod: Pod) -> bool:
        return self._begun is not None and pod.created_seconds >= self._begun

    def _place(self, pod: Pod, node: str) -> None:
        """Check a placement by the engine's rules, before it counts."""
        report = self._report
        report.placed += 1
        answer = self._advisor.filter(pod._replace(node=None), [node], self._now)
        probability = answer.forecast.qos_violation_probability
        if not answer.nodes:
            kind = answer.verdicts[0].reason.value if answer.verdicts else "NoMatchingNode"
            report.refused[kind] = report.refused.get(kind, 0) + 1
            for verdict in answer.verdicts:
                if verdict.service:
                    report.services[verdict.service] = report.services.get(verdict.service, 0) + 1
                    self._refused_on.setdefault(node, set()).add(pod.uid)
        if probability is not None:
            row = self._advisor.state.columns.row_of.get(node, -1)
            services = frozenset(service_pod.key for service_pod in self._advisor.state.columns.services[row])
            self._open.append(_Judged(self._now, probability, services))

    def _measured(self, key: str, latency: float) -> None:
        record = self._advisor.state.record(key)
        workload = None if record is None else self._advisor.state.workload(record.pod.workload)
        if record is None or workload is None or latency <= workload.latency_p95_milliseconds:
            return
        slot = (key, int(self._now // self._slot))
        beside = bool(self._refused_on.get(record.node or ""))
        self._slots[slot] = self._slots.get(slot, False) or beside
        for judged in self._open:
            judged.broken = judged.broken or key in judged.services

    def _end(self, uid: str) -> None:
        for uids in self._refused_on.values():
            uids.discard(uid)
        seen = self._pods.pop(uid, None)
        if seen is not None:
            self._gone.append(seen)

    def _count_earlier(self, everybody: Iterable[_Seen]) -> None:
        """Add up the cpu that pods would have had between Cotide's decision and the other scheduler's."""
        changes: list[tuple[float, int]] = []
        report = self._report
        for seen in everybody:
            end = self._now if seen.bound is None else seen.bound
            if seen.decided is None or end - seen.decided < MOMENT_SECONDS:
                continue
            millicores = self._advisor.state.demand(seen.pod.requests).millicores
            report.earlier_pods += 1
            report.earlier_core_seconds += millicores / 1000.0 * (end - seen.decided)
            changes += [(seen.decided, millicores), (end, -millicores)]
        held = 0
        for _, change in sorted(changes):
            held += change
            report.earlier_at_once_millicores = max(report.earlier_at_once_millicores, held)


def shadow_report(lines: Iterable[bytes], catalogue: ModelCatalogue, *, slot_seconds: float = 300.0) -> ShadowReport:
    """Return the report of a ledger of shadow mode.

    Raises
    ------
    LedgerError
        When it is broken or was changed.
    ModelError
        When the catalogue lacks a model that it names.
    """
    ledger = read_ledger(lines)
    config = ledger.config
    advisor = ExtenderAdvisor(
        config, build_policy(config), catalogue.qos(""), ClusterState(), timeout_seconds=config.assume_timeout_seconds
    )
    account = ShadowAccount(advisor, catalogue, config.policy, slot_seconds)
    for entry in ledger:
        account.take(entry)
    return account.report()


def _first(seen: _Seen) -> float:
    """Return the earlier of a pod's two start times."""
    bound = 0.0 if seen.bound is None else seen.bound
    return bound if seen.decided is None else min(bound, seen.decided)


def _waits(seconds: list[float]) -> Waits:
    if not seconds:
        return Waits(0, 0.0, 0.0, 0.0)
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return Waits(len(ordered), sum(ordered) / len(ordered), ordered[round(0.5 * last)], ordered[round(0.95 * last)])

"""Takes batch work off a node with a service measured over its limit, where the model predicts that this helps.

Owned by the capacity of a policy that relieves latencies; receives each measured p95, asked in every cycle. The guard
judges a placement by today's rate. When the rate rises later, or the forecast was wrong, only a measurement shows it::

    held --over the limit for the observation time--> broken --a round, pause, a round, ...--> held, once measured so

What a round is worth. Let p be the forecast for the node as it is, and q the forecast without some pods. Under a law
that never falls in the pods, a limit that breaks without them also breaks with them. So a share q / p of the measured
breaks would stay. They would last until the longest of those pods has ended, R seconds by its predicted run time. So a
round avoids ``R (1 - q / p)`` seconds over the limit and throws away the work of its pods. The round happens where that
is worth more (`BATCH_SECONDS_PER_VIOLATION_SECOND`), with the pods that gain most. It takes some gratis pods where
these gain anything, otherwise batch pods too, and always the least work lost first. Two things stay as they are: a node
with a service that breaks by itself, and a job that is about to end.

`ArrivalRelief` acts before any measurement: on a node that got an online pod although a limit is predicted to break
there.

Invariants: online pods are never touched. A node without batch or gratis pods stays as it is, and so does a service
without a fresh measurement. Same state, samples, forecasts and time give the same evictions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig
from cotide_core.events import ServiceSampled
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import Evict, EvictCause
from cotide_core.kernels.array_types import Floats
from cotide_core.placement.placer import RISK_STEP
from cotide_core.qos.mix_batch import Departure, mixes_without
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.victim_selection import Candidate, Lost, may_go
from cotide_core.state.cluster_state import ClusterState, PodRecord

Remaining = Callable[[PodRecord], float]
"""Returns the seconds that a pod is still expected to run."""
Gain = Callable[["Option", float, float, float], float]
"""Returns the worth in core seconds of an option. Its arguments are the seconds that its last pod would still run, the
share of the breaks that stays without its pods, and the lost work.
"""
BATCH_SECONDS_PER_VIOLATION_SECOND: Final = 2.0
"""Core seconds of batch work that a second over the limit is worth (chosen: docs/results/joint.json)."""
ROUND_OPTIONS: Final = 4096
"""Most sets of victims in one cycle's question (chosen: a call of some 20 ms); the rest has its turn later."""


@dataclass(slots=True)
class _Broken:
    since: float
    measured: float
    milliseconds: float
    limit: float
    next_round: float = -math.inf


@dataclass(frozen=True, slots=True)
class Option:
    """Pods that might leave for a service, and whether they are all gratis; `rising_relief` asks about options, too."""

    service: str
    victims: tuple[Candidate, ...]
    gratis: bool


@dataclass(frozen=True, slots=True)
class Round:
    """The pods that leave."""

    victims: tuple[Candidate, ...]
    stays: float
    """Share of the breaks that is predicted to stay."""


class LatencyRelief:
    """Watches the measured latencies of one engine.

    Parameters
    ----------
    config : its observation time, pause and age of a measurement are those of the overload monitor, and so is the most
        that a round may take.
    """

    def __init__(self, config: HierarchicalConfig) -> None:
        self._config = config
        self._broken: dict[str, _Broken] = {}
        """By pod of a service."""

    def sampled(self, event: ServiceSampled, state: ClusterState, now: float) -> None:
        """Apply a measurement."""
        measured = measured_latency(event, state)
        if measured is None or measured[0] <= measured[1]:
            self._broken.pop(event.pod, None)
            return
        latency, limit = measured
        known = self._broken.get(event.pod)
        if known is None:
            known = self._broken[event.pod] = _Broken(now, now, latency, limit)
        known.measured, known.milliseconds = now, latency

    def relieve(
        self,
        state: ClusterState,
        evictions: Evictions,
        lost: Lost,
        remaining: Remaining,
        forecaster: QosForecaster,
        now: float,
    ) -> list[Evict]:
        """Return the evictions to make now, one round a node; each is noted in `evictions`."""
        options = self._options(state, evictions, lost, now)
        if not options:
            return []
        rounds = best_rounds(options, state, remaining, forecaster, _worth_of_a_break)
        out: list[Evict] = []
        for key in dict.fromkeys(option.service for option in options):
            broken = self._broken[key]
            broken.next_round = now + self._config.overload_pause_seconds
            if key in rounds:
                out.extend(self._evict(rounds[key], state.record(key), broken, evictions, now))
        return out

    def next_change(self, now: float) -> float:
        """Return when an observation or a pause ends; infinite for never."""
        moments = [
            max(broken.since + self._config.overload_observation_seconds, broken.next_round)
            for broken in self._broken.values()
        ]
        return min((moment for moment in moments if moment > now), default=math.inf)

    def _options(self, state: ClusterState, evictions: Evictions, lost: Lost, now: float) -> list[Option]:
        """Return the pods that might leave and their service, one service a node, as many as a cycle may ask about."""
        out: list[Option] = []
        rows: set[int] = set()
        for key, broken in list(self._broken.items()):
            record = promised(key, state)
            stale = now - broken.measured > self._config.usage_stale_seconds
            if record is None or stale:
                del self._broken[key]
                continue
            observed = now >= broken.since + self._config.overload_observation_seconds
            if not observed or now < broken.next_round or broken.measured < broken.next_round or record.row in rows:
                continue
            if len(out) >= ROUND_OPTIONS:
                break
            rows.add(record.row)
            out.extend(options_of(key, candidates_on(state, evictions, lost, record.row, now), self._most))
        return out

    @property
    def _most(self) -> int:
        return self._config.overload_evictions

    @staticmethod
    def _evict(
        chosen: Round, record: PodRecord | None, broken: _Broken, evictions: Evictions, now: float
    ) -> list[Evict]:
        service = "" if record is None else record.pod.workload or ""

        def why(node: str, without: str) -> str:
            return (
                f"{service} was measured at {broken.milliseconds:.3g} ms on {node}, its limit is {broken.limit:.3g} ms;"
                f" {without} {100 * chosen.stays:.0f} % of that risk would stay"
            )

        return evictions_of(chosen.victims, EvictCause.LATENCY, service, why, evictions, now)


class ArrivalRelief:
    """Makes room on the nodes of online pods that were bound at risk, under every policy with a guard.

    A node is due until the predicted probability passes, or until no batch or gratis pod is left that lowers it. Pods
    leave in the order of `candidates_on`, as few as suffice. If all of them together lower the probability by less than
    `RISK_STEP`, they stay: their work would be lost without gain.
    """

    def __init__(self) -> None:
        self._due: dict[str, str] = {}
        """The key of the arrived pod, by node."""

    def relieve(
        self,
        arrived: Mapping[str, str],
        state: ClusterState,
        evictions: Evictions,
        lost: Lost,
        forecaster: QosForecaster,
        accepted: float,
        now: float,
    ) -> list[Evict]:
        """Return the evictions for pods that came at risk; each is noted in `evictions`.

        Parameters
        ----------
        arrived : keys of the pods that were bound at risk in this cycle, by node.
        accepted : the highest accepted probability.
        """
        self._due |= arrived
        out: list[Evict] = []
        asked = 0
        for node, key in list(self._due.items()):
            record = promised(key, state)
            if record is None or record.node != node:
                del self._due[node]
                continue
            if asked >= ROUND_OPTIONS:
                break
            if _is_settling(state, evictions, record.row):
                continue
            ordered = candidates_on(state, evictions, lost, record.row, now)
            asked += (1 + len(ordered)) * len(state.columns.services[record.row])
            risks = _risks_without(state, ordered, record.row, forecaster)
            count = _least_enough(risks, accepted)
            if not count:
                del self._due[node]
                continue
            why = _why_arrived(record.pod.workload or "", risks[0], risks[count])
            service = record.pod.workload or ""
            out += evictions_of(ordered[:count], EvictCause.LATENCY_AT_RISK, service, why, evictions, now)
        return out


def _is_settling(state: ClusterState, evictions: Evictions, row: int) -> bool:
    """Whether batch or gratis pods of a row are on their way in or out."""
    asked = evictions.asked()
    return any(
        record.pod.terminating or record.assumed_seconds is not None or record.pod.key in asked
        for record in state.records_on(row)
        if record.pod.workload_class is not WorkloadClass.ONLINE
    )


def _risks_without(
    state: ClusterState, ordered: Sequence[Candidate], row: int, forecaster: QosForecaster
) -> list[float]:
    """Return the probability that a limit on a row breaks, as it is and without the first one, two, ... pods."""
    services = [service_pod.key for service_pod in state.columns.services[row]]
    leaving = tuple(candidate.record for candidate in ordered)
    departures = [Departure(key, leaving[:count]) for count in range(len(leaving) + 1) for key in services]
    answers: Floats = forecaster.answer(mixes_without(state, departures)).probability
    risks: list[float] = answers.reshape(-1, len(services)).max(axis=1).tolist()
    return risks


def _least_enough(risks: Sequence[float], accepted: float) -> int:
    """Return how many pods leave: until the risk is accepted, otherwise until it is about as low as possible."""
    enough = accepted
    if risks[-1] > accepted:
        enough = math.nextafter(risks[-1] + RISK_STEP, -math.inf)
    return next(count for count, risk in enumerate(risks) if risk <= enough or count == len(risks) - 1)


def _why_arrived(service: str, before: float, after: float) -> Callable[[str, str], str]:
    def why(node: str, without: str) -> str:
        return (
            f"{service} comes to {node}, where a latency limit is predicted to break (p={before:.2f}); {without}"
            f" p={after:.2f}"
        )

    return why


def evictions_of(
    victims: Sequence[Candidate],
    cause: EvictCause,
    service: str,
    why: Callable[[str, str], str],
    evictions: Evictions,
    now: float,
) -> list[Evict]:
    """Return an Evict for each pod of a round, noted in `evictions`.

    Parameters
    ----------
    service : key of the Workload that needs the room, as ``why`` names it.
    why : a node and "without this pod ..." to the reason, except what the pod is and loses.
    """
    others = len(victims) - 1
    without = f"without this pod and {others} more" if others else "without this pod"
    out = []
    for victim in victims:
        pod, node = victim.record.pod, victim.record.node or ""
        evictions.ask(victim.record, now)
        reason = f"{why(node, without)}; a {pod.workload_class} pod with {victim.lost:.0f} core s done"
        out.append(Evict(pod.key, pod.uid, node, reason, cause, service=service))
    return out


def promised(key: str, state: ClusterState) -> PodRecord | None:
    """Return an online pod on a row, if a Workload gives it a promise; None for any other.

    Its Workload may have gone, or its class changed, since the measurement.
    """
    record = state.record(key)
    if record is None or record.row < 0:
        return None
    return record if any(service_pod.key == key for service_pod in state.columns.services[record.row]) else None


def measured_latency(event: ServiceSampled, state: ClusterState) -> tuple[float, float] | None:
    """Return the p95 of a sample and the limit of its service, in ms; None where either is not known."""
    record = state.record(event.pod)
    promise = None if record is None else state.workload(record.pod.workload)
    latency = event.latency_p95_milliseconds
    return None if promise is None or latency is None else (latency, promise.latency_p95_milliseconds)


def candidates_on(state: ClusterState, evictions: Evictions, lost: Lost, row: int, now: float) -> list[Candidate]:
    """Return the pods that may leave a row, in the order of leaving; none while a victim is on its way out."""
    records = state.records_on(row)
    if any(record.pod.terminating and record.pod.workload_class is not WorkloadClass.ONLINE for record in records):
        return []
    asked = evictions.asked()
    if any(record.pod.key in asked for record in records):
        return []
    out: list[Candidate] = []
    for cls in (WorkloadClass.GRATIS, WorkloadClass.BATCH):
        there = [record for record in records if may_go(record, cls, now) and evictions.open(record, now)]
        candidates = [Candidate(record, np.zeros(0), lost(record)) for record in there]
        out += sorted(candidates, key=lambda candidate: (candidate.record.pod.prefer_no_eviction, candidate.cost))
    return out


def options_of(service: str, ordered: Sequence[Candidate], most: int) -> list[Option]:
    """Return each pod alone, and the first two, three ... up to ``most`` together."""
    sets: list[tuple[Candidate, ...]] = [(candidate,) for candidate in ordered]
    sets += [tuple(ordered[:count]) for count in range(2, min(most, len(ordered)) + 1)]
    gratis = WorkloadClass.GRATIS
    return [
        Option(service, victims, all(victim.record.pod.workload_class is gratis for victim in victims))
        for victims in sets
    ]


def _worth_of_a_break(option: Option, seconds: float, stays: float, lost: float) -> float:
    del option
    return BATCH_SECONDS_PER_VIOLATION_SECOND * seconds * (1.0 - stays) - lost


def best_rounds(
    options: Sequence[Option], state: ClusterState, remaining: Remaining, forecaster: QosForecaster, worth: Gain
) -> dict[str, Round]:
    """Return the worthwhile round of each service; one call of the forecaster for all."""
    services = list(dict.fromkeys(option.service for option in options))
    departures = [Departure(key, ()) for key in services]
    departures += [Departure(option.service, tuple(victim.record for victim in option.victims)) for option in options]
    answers: Floats = forecaster.answer(mixes_without(state, departures)).probability
    present = dict(zip(services, answers.tolist(), strict=False))
    best: dict[str, tuple[bool, float, Round]] = {}
    for option, without in zip(options, answers[len(services) :].tolist(), strict=True):
        before = present[option.service]
        stays = without / before if before > 0 else 1.0
        seconds = max(remaining(victim.record) for victim in option.victims)
        gain = worth(option, seconds, stays, sum(victim.lost for victim in option.victims))
        known = best.get(option.service)
        if gain > 0 and (known is None or (option.gratis, gain) > known[:2]):
            best[option.service] = option.gratis, gain, Round(option.victims, stays)
    return {key: found[2] for key, found in best.items()}

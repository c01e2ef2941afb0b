"""Takes batch work off a node with a service that still holds its limit and is forecast to break it soon.

Owned by the capacity of a policy that relieves latencies, where `relieves_rising` is set; receives each measured p95,
asked in every cycle. The forecasts are request rates (`RatesForecasted`). Rises are looked at over the shortest
horizon, since the next forecast comes before the one after it.

What a measurement shows about the model. Let a mix break where a hidden number U, even in [0, 1), lies below its
forecast. Then forecasts p and q of two mixes break together as often as a law that never falls in them allows. A
service that holds with a forecast p0 has its U above p0. So with the forecast p1 at the higher rate it breaks with the
probability ``(p1 - p0) / (1 - p0)``, and ``(max(q1, p0) - p0) / (1 - p0)`` without some pods. A round avoids the
difference for as long as they would have stayed, the horizon at most. It happens where that is worth more than the work
that it throws away (`latency_relief.BATCH_SECONDS_PER_VIOLATION_SECOND`). It takes gratis pods where these gain
anything, then batch, the least work lost first.

Invariants: as of `latency_relief`. A service without a measurement within the horizon, or without a forecast rise of
its rate, stays as it is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cotide_core.config import HierarchicalConfig
from cotide_core.events import ServiceSampled
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import Evict, EvictCause
from cotide_core.qos.mix_batch import Departure, mixes_without
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.latency_relief import (
    BATCH_SECONDS_PER_VIOLATION_SECOND,
    ROUND_OPTIONS,
    Option,
    Remaining,
    candidates_on,
    evictions_of,
    measured_latency,
    options_of,
    promised,
)
from cotide_core.reclaiming.victim_selection import Lost
from cotide_core.state.cluster_state import ClusterState

NEAREST_HORIZON: Final = 1
"""The shortest horizon."""


class _Round(NamedTuple):
    gratis: bool
    gain: float
    option: Option
    before: float
    after: float
    """Risk within the horizon, with and without the pods."""


class RisingRelief:
    """Watches the services of one engine that hold their limits.

    Parameters
    ----------
    config : its pause, age of a measurement and most victims are those of the overload monitor.
    """

    def __init__(self, config: HierarchicalConfig) -> None:
        self._config = config
        self._holds: dict[str, float] = {}
        """Time of the latest measurement of each service pod within its limit."""
        self._next: dict[str, float] = {}
        """By node: the time before which it gets no other round."""
        self._judged: dict[str, int] = {}
        """Version of each pod's row at the last question about it: an unchanged node is asked about once."""

    def sampled(self, event: ServiceSampled, state: ClusterState, now: float) -> None:
        """Apply a measurement."""
        measured = measured_latency(event, state)
        if measured is None or measured[0] > measured[1]:
            self._holds.pop(event.pod, None)
            self._judged.pop(event.pod, None)
        else:
            self._holds[event.pod] = now

    @property
    def remembered(self) -> int:
        """How many pods and nodes have kept data; a node that went is forgotten in the next cycle after its pause."""
        return len(self._holds) + len(self._next) + len(self._judged)

    def relieve(
        self,
        state: ClusterState,
        evictions: Evictions,
        lost: Lost,
        remaining: Remaining,
        forecaster: QosForecaster,
        now: float,
    ) -> list[Evict]:
        """Return the evictions to make now, one round a node at most; each is noted in `evictions`."""
        options = self._options(state, evictions, lost, now)
        if not options:
            return []
        seconds = state.rate_forecasts.horizons_seconds[NEAREST_HORIZON - 1]
        best: dict[int, _Round] = {}
        for found in _rounds(options, state, remaining, forecaster, seconds):
            record = state.record(found.option.service)
            known = None if record is None else best.get(record.row)
            if record is not None and (known is None or found[:2] > known[:2]):
                best[record.row] = found
        out: list[Evict] = []
        for chosen in best.values():
            out += self._evict(chosen, state, evictions, seconds, now)
        return out

    def _options(self, state: ClusterState, evictions: Evictions, lost: Lost, now: float) -> list[Option]:
        """Return the pods that might leave and their service, as many as a cycle may ask about."""
        if not state.rate_forecasts.horizons_seconds:
            return []
        stale = now - self._config.usage_stale_seconds
        self._next = {node: until for node, until in self._next.items() if now < until}  # nodes come and go
        out: list[Option] = []
        for key, measured in list(self._holds.items()):
            record = promised(key, state)
            if record is None or measured < stale:
                del self._holds[key]
                self._judged.pop(key, None)
                continue
            ahead, rate = state.rate_forecasts.of(key), record.requests_per_second
            rises = rate is not None and bool(ahead) and ahead[NEAREST_HORIZON - 1] > rate
            version = int(state.columns.versions[record.row])
            waits = now < self._next.get(record.node or "", now) or len(out) >= ROUND_OPTIONS
            if not rises or waits or self._judged.get(key) == version:
                continue
            self._judged[key] = version
            out += options_of(
                key, candidates_on(state, evictions, lost, record.row, now), self._config.overload_evictions
            )
        return out

    def _evict(
        self, chosen: _Round, state: ClusterState, evictions: Evictions, seconds: float, now: float
    ) -> list[Evict]:
        record = state.record(chosen.option.service)
        service = "" if record is None else record.pod.workload or ""

        def why(node: str, without: str) -> str:
            return (
                f"{service} is forecast to get more requests on {node} within {seconds:.0f} s: then it breaks its limit"
                f" with {100 * chosen.before:.0f} %, {without} with {100 * chosen.after:.0f} %"
            )

        out = evictions_of(chosen.option.victims, EvictCause.LATENCY_RISES, service, why, evictions, now)
        self._next.update((evict.node, now + self._config.overload_pause_seconds) for evict in out)
        return out


def _rounds(
    options: list[Option], state: ClusterState, remaining: Remaining, forecaster: QosForecaster, seconds: float
) -> list[_Round]:
    """Return the worthwhile rounds; one call of the forecaster for all."""
    services = list(dict.fromkeys(option.service for option in options))
    departures = [Departure(key, (), horizon) for key in services for horizon in (0, NEAREST_HORIZON)]
    departures += [
        Departure(option.service, tuple(each.record for each in option.victims), NEAREST_HORIZON) for option in options
    ]
    answers: list[float] = forecaster.answer(mixes_without(state, departures)).probability.tolist()
    present = {key: answers[2 * index : 2 * index + 2] for index, key in enumerate(services)}
    out = []
    for option, without in zip(options, answers[2 * len(services) :], strict=True):
        held, soon = present[option.service]
        if soon <= held:
            continue
        before, after = (soon - held) / (1.0 - held), (max(without, held) - held) / (1.0 - held)
        stays = min(seconds, max(remaining(victim.record) for victim in option.victims))
        gain = BATCH_SECONDS_PER_VIOLATION_SECOND * stays * (before - after) - sum(
            victim.lost for victim in option.victims
        )
        if gain > 0:
            out.append(_Round(option.gratis, gain, option, before, after))
    return out

"""Takes batch work off a node with a service that holds its limit, but with a measured p95 rising towards it.

Owned by the capacity of a policy that relieves latencies, where `relieves_trend` is set; receives each measured p95,
asked in every cycle. The log of the p95 over its limit is extrapolated, by a straight line through the latest samples
of one mix. A sample next to other batch work does not belong to the line.

The worth of acting before the break. P is the probability that the next sample is above the limit (normal, by the
line's own error of prediction). `latency_relief` would relieve a break anyway, once it was measured and observed for D
seconds. The price is L, the work of the same pods. So waiting costs ``P (1 - q/p) D`` seconds over the limit, with p
and q the model's forecasts with and without the pods. Acting now throws away L where nothing would have broken: ``(1 -
P) L``. The module evicts where the first is worth more (`latency_relief.BATCH_SECONDS_PER_VIOLATION_SECOND`). It takes
only pods that `latency_relief` would evict after the break, too: gratis pods where these gain anything, the least work
lost first.

Invariants: as of `latency_relief`. A service with fewer than `LEAST_SAMPLES` samples, or with a falling or level line,
stays as it is. A sample is judged once.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from cotide_core.config import HierarchicalConfig
from cotide_core.events import ServiceSampled
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import Evict, EvictCause
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.latency_relief import (
    BATCH_SECONDS_PER_VIOLATION_SECOND,
    ROUND_OPTIONS,
    Option,
    Remaining,
    Round,
    best_rounds,
    candidates_on,
    evictions_of,
    measured_latency,
    options_of,
    promised,
)
from cotide_core.reclaiming.victim_selection import Lost
from cotide_core.state.cluster_state import ClusterState

LEAST_SAMPLES: Final = 5
MOST_SAMPLES: Final = 8
"""Of a line (chosen: two to four minutes with a scrape each 15 or 30 s)."""


@dataclass(slots=True)
class _LatencySeries:
    """The latest samples of one service next to one mix."""

    batch_millicores: int
    times: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    logs: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    """Of p95 over limit."""


class TrendRelief:
    """Watches the measured latencies of one engine that hold their limits.

    Parameters
    ----------
    config : its observation time, pause, age of a measurement and most victims are those of the overload monitor.
    """

    def __init__(self, config: HierarchicalConfig) -> None:
        self._config = config
        self._series: dict[str, _LatencySeries] = {}
        """By pod of a service."""
        self._sampled: dict[str, None] = {}
        """Pods with an unjudged latest sample, in order."""
        self._next: dict[str, float] = {}
        """By node: the time before which it gets no other round."""

    def sampled(self, event: ServiceSampled, state: ClusterState, now: float) -> None:
        """Apply a measurement."""
        record, measured = state.record(event.pod), measured_latency(event, state)
        if measured is None or record is None or record.row < 0 or not 0.0 < measured[0] <= measured[1]:
            self._forget(event.pod)
            return
        there = int(state.columns.batch_millicores[record.row])
        series = self._series.get(event.pod)
        stale = self._config.usage_stale_seconds
        if series is None or series.batch_millicores != there or now - series.times[-1] > stale:
            series = self._series[event.pod] = _LatencySeries(there)
        series.times.append(now)
        series.logs.append(math.log(measured[0] / measured[1]))
        self._sampled[event.pod] = None

    @property
    def remembered(self) -> int:
        """How many pods and nodes have kept data; a node that went is forgotten in the next cycle after its pause."""
        return len(self._series) + len(self._sampled) + len(self._next)

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
        self._next = {node: until for node, until in self._next.items() if now < until}  # nodes come and go
        options, risks = self._options(state, evictions, lost, now)
        if not options:
            return []
        delay = self._config.overload_observation_seconds

        def gain(option: Option, seconds: float, stays: float, work: float) -> float:
            after_break = BATCH_SECONDS_PER_VIOLATION_SECOND * seconds * (1.0 - stays) - work
            risk, interval = risks[option.service]
            now_rather = (
                risk * BATCH_SECONDS_PER_VIOLATION_SECOND * min(seconds, delay + interval) * (1.0 - stays)
                - (1.0 - risk) * work
            )
            return min(after_break, now_rather)

        out: list[Evict] = []
        for key, chosen in best_rounds(options, state, remaining, forecaster, gain).items():
            out += self._evict(key, chosen, risks[key][0], state, evictions, now)
        return out

    def _options(
        self, state: ClusterState, evictions: Evictions, lost: Lost, now: float
    ) -> tuple[list[Option], dict[str, tuple[float, float]]]:
        """Return the pods that might leave and their service, one service a node. The second value gives by service the
        probability that the next sample breaks its limit, and the seconds between two samples.
        """
        sampled, self._sampled = self._sampled, {}
        if not sampled:
            return [], {}
        for key in [key for key in self._series if promised(key, state) is None]:
            self._forget(key)
            sampled.pop(key, None)
        out: list[Option] = []
        risks: dict[str, tuple[float, float]] = {}
        rows: set[int] = set()
        for key in sampled:
            record, series = state.record(key), self._series[key]
            if record is None or record.row < 0:
                continue
            waits = (record.node or "") in self._next or record.row in rows or len(out) >= ROUND_OPTIONS
            if waits or len(series.times) < LEAST_SAMPLES:
                continue
            interval = (series.times[-1] - series.times[0]) / (len(series.times) - 1)
            risk = crossing_probability(list(series.times), list(series.logs), series.times[-1] + interval)
            if risk <= 0.0:
                continue
            risks[key] = risk, interval
            rows.add(record.row)
            there = candidates_on(state, evictions, lost, record.row, now)
            out += options_of(key, there, self._config.overload_evictions)
        return out, risks

    def _evict(
        self, key: str, chosen: Round, risk: float, state: ClusterState, evictions: Evictions, now: float
    ) -> list[Evict]:
        record = state.record(key)
        service = "" if record is None else record.pod.workload or ""

        def why(node: str, without: str) -> str:
            return (
                f"the p95 of {service} on {node} rises towards its limit, and is above it at the next measurement with"
                f" {100 * risk:.0f} %; {without} {100 * chosen.stays:.0f} % of that risk would stay"
            )

        out = evictions_of(chosen.victims, EvictCause.LATENCY_RISES, service, why, evictions, now)
        self._next.update((evict.node, now + self._config.overload_pause_seconds) for evict in out)
        return out

    def _forget(self, key: str) -> None:
        self._series.pop(key, None)
        self._sampled.pop(key, None)


def crossing_probability(times: list[float], logs: list[float], at: float) -> float:
    """Return the probability that a straight line through samples, with their noise about it, is above 0 at a moment.

    0 if the line does not rise. Least squares; the error of prediction of one more sample counts as normal.

    Parameters
    ----------
    times, logs : n > 2 samples, not all at one time.
    """
    count = len(times)
    middle, level = math.fsum(times) / count, math.fsum(logs) / count
    spread = math.fsum((time - middle) ** 2 for time in times)
    if spread <= 0.0:
        return 0.0
    slope = math.fsum((time - middle) * log for time, log in zip(times, logs, strict=True)) / spread
    if slope <= 0.0:
        return 0.0
    left = math.fsum((log - level - slope * (time - middle)) ** 2 for time, log in zip(times, logs, strict=True))
    error = math.sqrt(left / (count - 2) * (1.0 + 1.0 / count + (at - middle) ** 2 / spread))
    ahead = level + slope * (at - middle)
    if error <= 0.0:
        return 1.0 if ahead > 0.0 else 0.0
    return 0.5 * math.erfc(-ahead / error / math.sqrt(2.0))

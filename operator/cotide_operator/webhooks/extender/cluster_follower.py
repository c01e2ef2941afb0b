"""The cluster as the extender knows it: a state of its own, fed from the cache and from the engine beside it.

Owned by the extender's thread: other threads only append to its two queues (`note` and `emit`), and everything else
happens in `catch_up`::

    cache's changes --note--> EventSource --events--.
                                                     >-- ExtenderAdvisor
    engine's binds, samples, forecasts --tell-------'

A state of its own costs memory and a second translation of each pod, and buys that an answer never waits for a decision
cycle, and that a replica which does not lead answers, too. Invariants: what was noted or told before a request came is
known to its answer; before anybody can ask, no more is kept than the cluster has: there may be no certificate for days.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.errors import InputError
from cotide_core.events import (
    BindRefused,
    Event,
    NodeForecasted,
    NodeUsageSampled,
    Pod,
    PodAssumed,
    ServiceSampled,
)
from cotide_core.forecasting.heuristics import HeuristicQos
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import Bind, Instruction
from cotide_core.policies import build_policy
from cotide_core.reclaiming.extender_advisor import ExtenderAdvisor
from cotide_core.state.cluster_state import ClusterState
from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import Kind, ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.translation.event_source import EventSource
from cotide_operator.translation.pod_times import PodTimes
from cotide_operator.translation.pods_and_nodes import affiliation_of_new, translate_pod

_LOG = logging.getLogger(__name__)

_EVENTS: Final = (ServiceSampled, NodeUsageSampled, NodeForecasted, BindRefused)
"""What the engine is told of and the cache does not show."""
WARNING_SECONDS: Final = 60.0
"""Wall seconds between two lines about events that are left out; chosen."""
PENDING_BEFORE: Final = 10_000
"""Events that wait before anybody can ask; of more, the last of each pod and node is kept (chosen: some MB)."""


class ClusterFollower:
    """State and advisor of one extender.

    Parameters
    ----------
    config : of the engine beside it.
    cache : subscribed to at once; read in the extender's thread, one look-up after the other.
    scheduler_names : whose pods are the engine's own.
    assume_seconds : of the clock, until an assumption that nobody confirmed is given up.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        cache: ObjectCache,
        clock: Clock,
        scheduler_names: tuple[str, ...],
        assume_seconds: float,
    ) -> None:
        self._config = config
        self._cache = cache
        self._clock = clock
        self._scheduler_names = scheduler_names
        self._assume_seconds = assume_seconds
        self._noted: deque[tuple[Kind, str]] = deque()
        self._pending: deque[Event | QosForecaster] = deque()
        self._most_pending = PENDING_BEFORE
        self._warned = float("-inf")
        self._begun = False
        self._beginning = threading.Lock()
        """Held where what waits is thinned out, and where it begins to be taken."""
        self._source: EventSource | None = None
        self.advisor: ExtenderAdvisor
        """There once `begin` was called."""
        self._qos: QosForecaster = HeuristicQos()
        cache.subscribe(self._note)

    # ---- called from the operator's own thread

    def emit(self, news: Event | QosForecaster) -> None:
        """Hand over an event of the engine, or another forecaster of latency risks, which is then only ours."""
        self._pending.append(news)
        self._thin_out()

    def entry(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        """Take over what the engine heard and decided in one cycle."""
        self._pending.extend(event for event in events if isinstance(event, _EVENTS))
        self._pending.extend(
            PodAssumed(instruction.key, instruction.uid, instruction.node, now)
            for instruction in instructions
            if isinstance(instruction, Bind)
        )
        self._thin_out()

    def renew(self) -> None:
        """Do nothing: what an engine that failed had decided is decided again, or refused by the binder."""

    def _note(self, kind: Kind, key: str) -> None:
        if self._begun:  # before, all that is there is listed when it begins
            self._noted.append((kind, key))

    def _thin_out(self) -> None:
        """Keep the last that waits of each pod and node that is there, as long as nobody takes it."""
        if len(self._pending) <= self._most_pending:
            return
        with self._beginning:
            if self._begun:
                return
            last: dict[object, Event | QosForecaster] = {}
            for news in self._pending:
                what = self._subject(news)
                last.pop(what, None)
                if what is not None:
                    last[what] = news
            self._pending = deque(last.values())
            self._most_pending = max(PENDING_BEFORE, 2 * len(last))

    def _subject(self, news: Event | QosForecaster) -> object:
        """Return what a later event would speak of to make this one void; None of a pod or node that is gone."""
        if isinstance(news, PodAssumed | BindRefused):
            return ("place", news.key) if news.key in self._cache.pods else None
        if isinstance(news, ServiceSampled):
            return ("service", news.pod) if news.pod in self._cache.pods else None
        if isinstance(news, NodeUsageSampled | NodeForecasted):
            return (type(news), news.node) if news.node in self._cache.nodes else None
        return "forecaster"

    # ---- called from the extender's thread

    def begin(self) -> None:
        """Translate everything that is there; the first answer can be given then."""
        advisor = ExtenderAdvisor(
            self._config,
            build_policy(self._config),
            self._qos,
            ClusterState(),
            timeout_seconds=self._assume_seconds,
        )
        with self._beginning:
            self._begun = True  # before the source lists what is there: what comes after is noted
            self._noted.clear()
        self._source = EventSource(
            self._cache, self._clock, self._scheduler_names, subscribe=False, quarantine=_left_to_the_engine
        )
        self.advisor = advisor
        self.catch_up()

    def catch_up(self) -> float:
        """Take in everything that was noted or told; return the time that it is then."""
        source = self._source
        if source is None:
            return self._clock.now()
        while self._noted:
            source.mark(*self._noted.popleft())
        if source.waiting:
            self._take(source.collect())
            source.take_arrivals()  # nobody here welcomes them, and they would be kept for ever
        while self._pending:
            news = self._pending.popleft()
            if isinstance(news, QosForecaster):
                self._qos = news
                self.advisor.use(news)
            else:
                self._take((news,))
        return self._clock.now()

    def _take(self, events: Iterable[Event]) -> None:
        """Take in events one by one: what trips us must not cost those behind it, which nobody tells again."""
        for event in events:
            try:
                self.advisor.take((event,))
            except Exception:  # noqa: BLE001 - the engine trips over it, too, and sets the object aside for all
                if time.monotonic() - self._warned >= WARNING_SECONDS:
                    self._warned = time.monotonic()
                    _LOG.exception("the extender leaves an event out: %.200r", event)

    def pod(self, key: str, uid: str) -> Pod | None:
        """Return a pod as the watch told of it; None where it did not yet, or of another one of this name."""
        found = None if self._source is None else self._source.pods.get(key)
        return found if found is not None and found.uid == uid else None

    def translated(self, pod: PodObject, now: float) -> Pod:
        """Return a pod that the watch did not tell of yet, as it was sent.

        Raises
        ------
        InputError
            When it trips us: no API server need ever have seen it, and whoever reaches the port may have sent it.
        """
        seen = PodTimes(pod.metadata.uid, now)
        try:
            return translate_pod(pod, affiliation_of_new(pod, self._cache), seen, self._scheduler_names)
        except Exception as error:
            raise InputError(f"can't be judged: {error!s:.200}", field="Pod") from error


def _left_to_the_engine(kind: Kind, key: str, part: str, error: Exception) -> None:
    """Say nothing: the operator's own source trips over the same object, and sets it aside for all."""
    del kind, key, part, error

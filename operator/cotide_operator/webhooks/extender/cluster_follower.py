"""The cluster as the extender knows it: a state of its own, fed from the cache and from the engine in the same process.

The extender's thread owns it. Other threads only append to its two queues (`note` and `emit`); all else happens in
`catch_up`::

    cache's changes --note--> EventSource --events--.
                                                     >-- ExtenderAdvisor
    engine's binds, samples, forecasts --emit-------'

A state of its own costs memory and a second translation of each pod. In return, an answer never waits for a decision
cycle, and a replica that does not lead answers, too. Invariants: an answer takes into account everything that was noted
or emitted before its request. Before the first request can come, the queues hold no more than the cluster has: the
certificate may be missing for days.
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
"""Events of the engine that the cache does not show."""
WARNING_SECONDS: Final = 60.0
"""Wall seconds between two log lines about skipped events; chosen."""
PENDING_BEFORE: Final = 10_000
"""Events that may wait before the first request; beyond that, the last of each pod and node stays (chosen: some MB)."""


class ClusterFollower:
    """State and advisor of one extender.

    Parameters
    ----------
    config : of the engine in the same process.
    cache : the follower subscribes at once; it reads in the extender's thread, one look-up after the other.
    scheduler_names : schedulers of the engine's own pods.
    assume_seconds : of the clock, after which an unconfirmed assumption expires.
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
        """Held while the waiting events are thinned out, and while their processing begins."""
        self._source: EventSource | None = None
        self.advisor: ExtenderAdvisor
        """Set by `begin`."""
        self._qos: QosForecaster = HeuristicQos()
        cache.subscribe(self._note)

    # ---- called from the operator's own thread

    def emit(self, news: Event | QosForecaster) -> None:
        """Queue an event of the engine, or another forecaster of latency risks, which then belongs to the follower."""
        self._pending.append(news)
        self._thin_out()

    def entry(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        """Queue the events and decisions of one engine cycle."""
        self._pending.extend(event for event in events if isinstance(event, _EVENTS))
        self._pending.extend(
            PodAssumed(instruction.key, instruction.uid, instruction.node, now)
            for instruction in instructions
            if isinstance(instruction, Bind)
        )
        self._thin_out()

    def renew(self) -> None:
        """Do nothing: a new engine repeats the decisions of a failed one, or the binder refuses them."""

    def _note(self, kind: Kind, key: str) -> None:
        if self._begun:  # before that, `begin` lists all objects
            self._noted.append((kind, key))

    def _thin_out(self) -> None:
        """Keep the last waiting event of each existing pod and node, until the processing begins."""
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
        """Return the subject that a later event would replace; None for a deleted pod or node."""
        if isinstance(news, PodAssumed | BindRefused):
            return ("place", news.key) if news.key in self._cache.pods else None
        if isinstance(news, ServiceSampled):
            return ("service", news.pod) if news.pod in self._cache.pods else None
        if isinstance(news, NodeUsageSampled | NodeForecasted):
            return (type(news), news.node) if news.node in self._cache.nodes else None
        return "forecaster"

    # ---- called from the extender's thread

    def begin(self) -> None:
        """Translate all objects; the first answer is possible then."""
        advisor = ExtenderAdvisor(
            self._config,
            build_policy(self._config),
            self._qos,
            ClusterState(),
            timeout_seconds=self._assume_seconds,
        )
        with self._beginning:
            self._begun = True  # before the source lists the objects: later changes are noted
            self._noted.clear()
        self._source = EventSource(
            self._cache, self._clock, self._scheduler_names, subscribe=False, quarantine=_left_to_the_engine
        )
        self.advisor = advisor
        self.catch_up()

    def catch_up(self) -> float:
        """Apply everything that was noted or emitted; return the present time."""
        source = self._source
        if source is None:
            return self._clock.now()
        while self._noted:
            source.mark(*self._noted.popleft())
        if source.waiting:
            self._take(source.collect())
            source.take_arrivals()  # unused here, and they would pile up
        while self._pending:
            news = self._pending.popleft()
            if isinstance(news, QosForecaster):
                self._qos = news
                self.advisor.use(news)
            else:
                self._take((news,))
        return self._clock.now()

    def _take(self, events: Iterable[Event]) -> None:
        """Apply events one by one: a faulty event must not cost the later ones, which come only once."""
        for event in events:
            try:
                self.advisor.take((event,))
            except Exception:  # noqa: BLE001 - the engine fails over it, too, and quarantines the object for all
                if time.monotonic() - self._warned >= WARNING_SECONDS:
                    self._warned = time.monotonic()
                    _LOG.exception("the extender skips an event: %.200r", event)

    def pod(self, key: str, uid: str) -> Pod | None:
        """Return a pod from the watch; None if it is missing yet, or has another uid."""
        found = None if self._source is None else self._source.pods.get(key)
        return found if found is not None and found.uid == uid else None

    def translated(self, pod: PodObject, now: float) -> Pod:
        """Return a pod that the watch has not delivered yet, from the request.

        Raises
        ------
        InputError
            If its translation fails: any client that reaches the port may have sent it, without any API server.
        """
        seen = PodTimes(pod.metadata.uid, now)
        try:
            return translate_pod(pod, affiliation_of_new(pod, self._cache), seen, self._scheduler_names)
        except Exception as error:
            raise InputError(f"can't be judged: {error!s:.200}", field="Pod") from error


def _left_to_the_engine(kind: Kind, key: str, part: str, error: Exception) -> None:
    """Do nothing: the operator's own source fails over the same object, and quarantines it for all."""
    del kind, key, part, error

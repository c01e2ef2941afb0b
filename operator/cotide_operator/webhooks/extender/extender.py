"""The extender as one part of the operator: its certificate, its server, its follower and its results.

`assembly` runs it on every replica: a standby also answers, from its own cache. A standby lacks the leader's
measurements and decisions (rates of services, host load, own bindings that the watch has not shown), so that its
answers are more cautious. Data between the threads passes through `ClusterFollower.emit` one way and `_hand_over` the
other. Invariant: a fault of the extender ends nothing else, except a port that is in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import Bind
from cotide_kube.answers import Answer
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.cache.decision_store import Decision
from cotide_operator.cache.fair_queue import FairSemaphore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.config.extender_settings import ExtenderSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.scheduling.binder import CALM_SECONDS
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, encode
from cotide_operator.webhooks.extender.cluster_follower import ClusterFollower
from cotide_operator.webhooks.extender.server import ExtenderServer
from cotide_operator.webhooks.extender.verbs import SCHEDULED, Decided, PostBinding, Verbs
from cotide_operator.webhooks.serving.served_certificate import ServedCertificate, serving_names
from cotide_operator.webhooks.serving.shared_certificate import SharedCertificate

BINDINGS_AT_ONCE: Final = 32
"""Bindings in flight of one namespace; all together have fewer than twice as many. Chosen: kube-scheduler binds while
it decides further."""
SYNC_SECONDS: Final = 0.05
BIND_TIMEOUT_SECONDS: Final = 4.0
"""Wall seconds of one attempt to bind; chosen below the timeout of a request."""


@dataclass(frozen=True, slots=True)
class ExtenderDependencies:
    """Parts of the operator that the extender needs.

    Attributes
    ----------
    client : without a fence: it keeps the certificate's Secret.
    credentials : for bindings, by a client of the extender's own thread.
    hand_over : receives the decisions, in the operator's own loop; called by the leading replica and by any other.
    now : the wall clock.
    """

    client: KubeClient
    credentials: Credentials
    cache: ObjectCache
    clock: Clock
    metrics: Metrics
    hand_over: Callable[[Decided], None]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


class Extender:
    """The extender of one replica.

    Parameters
    ----------
    settings : ExtenderSettings
    config : of the engine.
    scheduler_names : of the pods that are ours.
    needs : ExtenderDependencies
    """

    def __init__(
        self,
        settings: ExtenderSettings,
        config: SchedulerConfig,
        scheduler_names: tuple[str, ...],
        needs: ExtenderDependencies,
    ) -> None:
        self._settings = settings
        self._credentials = needs.credentials
        self._cache = needs.cache
        self._clock = needs.clock
        self._metrics = needs.metrics
        self._hand_over = needs.hand_over
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answered = float("-inf")
        self._decided: deque[Decided] = deque()
        self._called = False
        self.follower = ClusterFollower(
            config, needs.cache, needs.clock, scheduler_names, settings.assume_seconds * max(1.0, needs.clock.speed)
        )
        self.server = ExtenderServer(self._opened, needs.metrics)
        service, namespace = settings.service_name, settings.service_namespace
        names = serving_names(service, namespace)
        self._certificate = ServedCertificate(
            "extender",
            self.server,
            directory=settings.certificate_directory,
            shared=SharedCertificate(needs.client, namespace, f"{service}-certificate", names, now=needs.now),
            expiry=needs.metrics.extender_certificate_expiry,
            now=needs.now,
            client_authority=settings.client_authority,
        )

    @property
    def listening(self) -> bool:
        """Whether the extender can answer kube-scheduler."""
        return self._certificate.listening

    @property
    def rushed(self) -> bool:
        """Whether kube-scheduler had an answer a moment ago: more may come."""
        return time.monotonic() - self._answered < CALM_SECONDS

    def use(self, forecaster: QosForecaster) -> None:
        """Use another forecaster from now on: a copy, since forecasters cache their last results."""
        self.follower.emit(copy.deepcopy(forecaster))

    async def run(self, host: str) -> None:
        """Serve until cancelled, once everything was listed.

        Raises
        ------
        InputError
            When the port is taken.
        """
        self._loop = asyncio.get_running_loop()
        while not self._cache.synced:
            await asyncio.sleep(SYNC_SECONDS)
        await self._certificate.run(host, self._settings.port)

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Verbs]:
        """Begin to follow the cluster, in the extender's thread."""
        self.follower.begin()
        async with contextlib.AsyncExitStack() as stack:
            bind: PostBinding | None = None
            if self._settings.binds:
                most, timeout = 2 * BINDINGS_AT_ONCE, BIND_TIMEOUT_SECONDS
                client = KubeClient(self._credentials, max_connections=most, timeout_seconds=timeout)
                bind = partial(self._bind, await stack.enter_async_context(client), FairSemaphore(most))
            view = TenantView(self._cache)
            names, knows_clients = self._settings.scheduler_names, self._settings.client_authority is not None
            yield Verbs(self.follower, names, view, self._emit, bind, knows_clients=knows_clients)

    async def _bind(self, client: KubeClient, slots: FairSemaphore, bind: Bind) -> Answer:
        namespace, _, name = bind.key.partition("/")
        decision = Decision(bind.key, bind.uid, self._clock.now(), bind.node, SCHEDULED, bind.reason, attempts=1)
        note = {DECISION_ANNOTATION: encode(TenantView(self._cache).decision(decision))}
        async with slots.slot(namespace):
            return await client.bind(namespace, name, bind.uid, bind.node, note)

    def _emit(self, outcome: Decided) -> None:
        """Wake the operator's loop, once for all new decisions; called in the extender's thread."""
        self._metrics.extender_assumed.set(self.follower.advisor.assumed)
        self._decided.append(outcome)
        self._answered = time.monotonic()
        if self._loop is not None and not self._called:
            self._called = True
            with contextlib.suppress(RuntimeError):  # the operator's loop is closed and needs no decisions
                self._loop.call_soon_threadsafe(self._take_over)

    def _take_over(self) -> None:
        self._called = False
        while self._decided:
            self._hand_over(self._decided.popleft())

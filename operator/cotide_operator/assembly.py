"""Builds the operator and runs it: the one place where its parts are created and connected.

``cotide operator`` and tests call it. Stages, each with a clear end::

    open port -> reach the API server -> resources installed -> reflectors -> lease -> models -> decide -> kopf -> stop
                 `--------------- begun before: see `reflectors` ---------------'

Invariants: no decision is made before the lease is held (or election is off), everything was listed and the last
leader's bindings were seen. When this replica stops, for any reason, it decides no more, ends its bindings, then
releases the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.errors import InputError
from cotide_core.events import BindRefused, Event, ModelsChanged, PodAssumed
from cotide_core.phases.growth import Amounts
from cotide_core.state.reclaimed import holdings
from cotide_core.units import CPU, MEMORY
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials, load_credentials
from cotide_operator.cache import preflight
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import KINDS, OPTIONAL_KINDS
from cotide_operator.cache.reflectors import TIMEOUT_SECONDS, Informers
from cotide_operator.clock import ScaledClock
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.config.settings import Settings, engine_config
from cotide_operator.consolidation.node_record import left_behind
from cotide_operator.consolidation.outcome_file import PROVISIONING, OutcomeFile
from cotide_operator.controllers.job_controller import ReconcileOptions
from cotide_operator.controllers.kopf_thread import KopfSupervisor, quiet_kopf
from cotide_operator.controllers.reconciliation import Controllers
from cotide_operator.controllers.starts.start_reporter import StartReporter
from cotide_operator.controllers.starts.start_times import StartLimits
from cotide_operator.host_load.metrics_feed import metrics_feed
from cotide_operator.leaderelection import node_backoffs
from cotide_operator.leaderelection.handover import Handover
from cotide_operator.leaderelection.lease_thread import LeaseThread
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.models.learned_store import LEARNED, ConfigMapStore, DirectoryStore, LearnedStore
from cotide_operator.models.qos_learning import QosLearning
from cotide_operator.models.rate_forecaster import RateForecaster
from cotide_operator.models.retraining import Retraining
from cotide_operator.models.run_time_habits import RunTimeHabits
from cotide_operator.models.store import ModelStore
from cotide_operator.observability.access import AccessReviews
from cotide_operator.observability.http_server import HealthServer
from cotide_operator.observability.ledger_file import LedgerFile
from cotide_operator.observability.loop_blocks import LoopBlocks
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed.node_outlook import Outlooks
from cotide_operator.reclaimed.publisher import Publication, ReclaimedPublisher
from cotide_operator.reporting.assisted_reporter import AssistedReporter
from cotide_operator.reporting.factory import Reporting, ReportingDependencies, make_reporting
from cotide_operator.reporting.pod_group_reporter import PodGroupReporter
from cotide_operator.reporting.quarantine_reporter import QuarantineReporter
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher
from cotide_operator.scheduling.binder import Binder
from cotide_operator.scheduling.composite_forecaster import CompositeForecaster
from cotide_operator.scheduling.evictor import Evictor
from cotide_operator.scheduling.garbage_passes import full_passes, thorough_passes
from cotide_operator.scheduling.phase_resizer import PhaseResizer
from cotide_operator.scheduling.scheduling_loop import EventForecaster, SchedulingLoop, records
from cotide_operator.scheduling.shadow import ShadowBinder, ShadowDispatcher
from cotide_operator.scheduling.volume_binder import VolumeBinder
from cotide_operator.task_supervisor import TaskSupervisor
from cotide_operator.translation.event_source import EventSource
from cotide_operator.usage.dependencies import Dependencies
from cotide_operator.usage.phase_learning import PhaseLearning
from cotide_operator.usage.usage_feed import UsageFeed

if TYPE_CHECKING:
    from cotide_operator.consolidation.controller import ConsolidationDependencies, Consolidator
    from cotide_operator.provisioning.controller import Provisioner
    from cotide_operator.webhooks.admission.webhook import AdmissionWebhook
    from cotide_operator.webhooks.extender.extender import Extender

_LOG = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 10.0
"""Wall seconds for bindings in flight at the end. Chosen below the 30 s that a kubelet grants."""
CONNECTIONS_BESIDE_BINDS: Final = 160
"""For the controllers, volumes, phases and the low-priority dispatcher. Chosen: the sum of their own limits, so that
none waits for a connection that another tenant's slow request holds."""
LEDGER_FLUSH_SECONDS: Final = 1.0
TAKE_OVER_SECONDS: Final = 60.0
"""Time that a ready standby stays ready while it takes over. Chosen: kopf loads within 2 s on an idle machine and
within 20 s where ten others share a core. Meanwhile no roll-out should stop, and the webhook keeps an address."""
KOPF_WAITS_SECONDS: Final = 5.0
"""Longest wait of kopf's start for the bindings of the first pods. Chosen: readiness waits for kopf."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line that the configuration file lacks."""

    kubeconfig: str | None = None
    context: str | None = None
    metrics_host: str | None = None
    """None: every address inside a cluster (probes come from outside the pod), loopback elsewhere."""
    metrics_port: int = 8080
    install_crds: bool = False


class Operator:
    """One replica of the operator.

    Attributes
    ----------
    cache, decisions, metrics, health, loop :
        Parts that tests and embedding programs read.
    """

    def __init__(
        self,
        settings: Settings,
        options: Options,
        credentials: Credentials | None = None,
        informers: Informers | None = None,
    ) -> None:
        """Create the parts in the order of their dependencies, from top to bottom."""
        if settings.shadow and options.install_crds:
            raise InputError("can't be used in shadow, where nothing is written", field="--install-crds")
        self.settings = settings
        self._options = options
        self._informers = informers or Informers(
            credentials or load_credentials(options.kubeconfig, options.context),
            install_crds=options.install_crds,
        )
        self._credentials = self._informers.credentials
        self.client = self._make_client()
        simulated = settings.simulated_time
        self.clock = ScaledClock(simulated.origin_seconds, simulated.speed) if simulated else ScaledClock()
        self.metrics = Metrics()
        self.decisions = DecisionStore()
        self.cache = self._informers.cache
        self.cache.max_class_without_label = settings.tenancy.max_class_without_label
        self.cache.class_by_priority_class = settings.classes.by_priority_class
        self.health = self._make_health()
        self.event_source = EventSource(self.cache, self.clock, settings.scheduler_names)
        self.forecast_scores = ForecastScores(self.metrics, self._limit_of, settings.slot_seconds)
        config = engine_config(settings)
        ledger = settings.ledger
        self._ledger = LedgerFile(ledger.directory, config, self.metrics) if ledger is not None else None
        self.models = self._make_models()
        kept = self._kept_in(settings.models.retraining.store)
        self._retraining = self._make_retraining(kept)
        self._habits = self._make_habits(kept)
        self._phase_learning = self._make_phase_learning()
        self.dispatcher = ShadowDispatcher(self._rushed) if settings.shadow else ApiDispatcher(self._rushed)
        self.outlooks = Outlooks()
        self.reporting = self._make_reporting(config)
        self._quarantine_reporter = QuarantineReporter(
            self.client,
            self.dispatcher,
            self.cache,
            self.reporting.recorder,
            self.metrics,
            scheduler_names=settings.scheduler_names,
        )
        self._pod_groups = PodGroupReporter(
            self.client,
            self.dispatcher,
            self.cache,
            self.decisions,
            self.metrics,
            members=self.event_source.members_of,
            scheduler_names=settings.scheduler_names,
        )
        self._assisted = AssistedReporter(self.decisions, self.reporting.outcomes.annotate, self.cache)
        self.extender = self._make_extender(config)
        self.loop = self._make_loop(config)
        self._handover = Handover(self.client, self.cache)
        self.binder = self._make_binder()
        # A standby answers, too, and keeps the certificate: the leader's fence does not apply.
        self.admission = self._make_webhook()
        self._host = ""
        self._leading = self._deciding = False
        self._took_over: float | None = None
        """When a ready standby began to lead, on the monotonic clock."""
        self._kopf = KopfSupervisor(self._credentials, self.metrics)
        self._lease: LeaseThread | None = None
        self._blocks = LoopBlocks()
        self._consolidator: Consolidator | None = None
        self._provisioner: Provisioner | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set.

        Raises
        ------
        CotideError
            When it can't run (any more): one sentence for the user.
        """
        in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ
        host = self._options.metrics_host or ("0.0.0.0" if in_cluster else "127.0.0.1")  # noqa: S104 - see Options
        self._host = host
        await self.health.start(host, self._options.metrics_port)
        _LOG.info("metrics, health and board on http://%s:%d", host, self.health.port)
        try:
            async with self.client:
                await self._run(stop)
        finally:
            if self._lease is not None:
                await self._lease.stop()
            await self._informers.end()
            if self._ledger is not None:
                self._ledger.close()
            await self.health.stop()

    async def _run(self, stop: asyncio.Event) -> None:
        async with TaskSupervisor() as supervisor:
            supervisor.take(self._informers.begin())
            supervisor.start(self._blocks.watch(), "longest block of the loop")
            supervisor.start(full_passes(), "garbage")
            supervisor.start(thorough_passes(self.loop.is_calm), "old garbage")
            if not await self._reached(supervisor, stop):
                return
            supervisor.start(self.loop.translate_ahead(), "translation ahead")
            supervisor.start(preflight.connect(self.client), "first connection")
            if self.settings.shadow:
                await self._watch(supervisor, stop)
                return
            if self.admission is not None:  # on a standby, too: it decides nothing
                supervisor.start(self.admission.run(self._host), "admission webhook")
            if self.extender is not None:  # on a standby, too
                await self.models.look()
                supervisor.start(self.models.watch(self.settings.models.poll_seconds), "models")
                supervisor.start(self.extender.run(self._host), "extender")
            leadership = await self._elect(supervisor, stop)
            if stop.is_set():
                return
            try:
                await self._lead(supervisor, stop, leadership)
            finally:
                self.loop.stop()
                self._leading = self._deciding = False
                gc.unfreeze()  # a process may hold several replicas, one after the other
                self.metrics.leader.set(0)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN_SECONDS):
                        await self.binder.drain()
                for learning in (self._retraining, self._habits, self._phase_learning):
                    if learning is not None:
                        await learning.keep()
                if leadership is not None:
                    await self._handover.hand_over(leadership, self.binder.unanswered)
                # Last: kopf can take seconds to end, and its late events have no consumer.
                if not await self._kopf.stop(DRAIN_SECONDS):
                    _LOG.warning("kopf did not end within %g s and is abandoned", DRAIN_SECONDS)
                _LOG.info("stopped")

    async def _reached(self, supervisor: TaskSupervisor, stop: asyncio.Event) -> bool:
        """Wait until the API server answers and serves our resources; False after a stop before that."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._informers.reached, stop)]
        try:
            await supervisor.until(*waits)
        finally:
            for wait in waits:
                wait.cancel()
        return not stop.is_set()

    async def _elect(self, supervisor: TaskSupervisor, stop: asyncio.Event) -> LeaseThread | None:
        election = self.settings.leader_election
        if not election.enabled:
            return None
        await preflight.await_namespace(self.client, election.namespace)
        identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        leadership = self._lease = LeaseThread(self._credentials, election, identity, timeout_seconds=TIMEOUT_SECONDS)
        await leadership.start()
        acquiring = supervisor.start(leadership.acquire(), "election")
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await supervisor.until(acquiring, stopping)
        finally:
            stopping.cancel()
        if stop.is_set():
            await leadership.withdraw()
        self.client.fence = leadership.permit
        return leadership

    async def _watch(self, supervisor: TaskSupervisor, stop: asyncio.Event) -> None:
        """Decide in shadow until the stop: the ledger records the decisions, and no other part writes."""
        self._leading = True
        await self.models.look()
        supervisor.start(self.models.watch(self.settings.models.poll_seconds), "models")
        if self._ledger is not None:
            supervisor.start(self._flush(self._ledger), "ledger")
        async with metrics_feed(self._dependencies(), supervisor):
            supervisor.start(self.loop.run(self.binder, self._ready), "loop")
            stopping = asyncio.ensure_future(stop.wait())
            try:
                await supervisor.until(stopping)
            finally:
                stopping.cancel()
                self.loop.stop()
                self._leading = self._deciding = False
                gc.unfreeze()
                _LOG.info("stopped; only the ledger was written")

    async def _lead(self, supervisor: TaskSupervisor, stop: asyncio.Event, leadership: LeaseThread | None) -> None:
        """Decide until the stop, or until a part fails or the lease is lost."""
        self._took_over = None if leadership is None or self._unlisted() else time.monotonic()
        self._leading = True
        self.metrics.leader.set(1)
        self._quarantine_reporter.lead()
        if self.extender is None:  # otherwise it needs the models, and has loaded them already
            await self.models.look()
            supervisor.start(self.models.watch(self.settings.models.poll_seconds), "models")
        if leadership is not None:
            supervisor.start(leadership.hold(self._backoffs), "lease")
        supervisor.start(self.binder.run(), "binder")
        supervisor.start(self._handover.watch(), "bindings that are not shown")
        supervisor.start(self.dispatcher.run(), "low-priority dispatcher")
        supervisor.start(self._pod_groups.run(), "statuses of PodGroups")
        if self._ledger is not None:
            supervisor.start(self._flush(self._ledger), "ledger")
        if self._retraining is not None:
            supervisor.start(self._retraining.run(), "retraining")
        if self._habits is not None:
            supervisor.start(self._habits.run(), "run times")
        supervisor.start(self._publisher().run(), "reclaimed capacity")
        async with (
            metrics_feed(self._dependencies(), supervisor) as feed,
            self._controlling(supervisor, feed),
            self._consolidating(supervisor),
        ):
            resizer = self.loop.growing = self._resizer(feed)
            supervisor.start(resizer.run(), "phases")
            if self._phase_learning is not None and feed is not None:
                supervisor.start(self._phase_learning.run(feed.usage_of), "learning of phases")
            supervisor.start(self.loop.run(self.binder, self._ready, lambda: self._inherit(leadership)), "loop")
            stopping = asyncio.ensure_future(stop.wait())
            try:
                await supervisor.until(stopping)
            finally:
                stopping.cancel()
                self.loop.stop()
                self.binder.close()

    async def _inherit(self, leadership: LeaseThread | None) -> None:
        """Take over from an earlier leader: its knowledge of services, runs and nodes, and its last bindings."""
        if self._retraining is not None:
            await self._retraining.restore()
        if self._habits is not None:
            await self._habits.restore()
        if leadership is not None:
            for event in node_backoffs.read(leadership.backoffs, self.clock, self.clock.now()):
                self.loop.emit(event)
        await self._handover.inherit(leadership)

    def _backoffs(self) -> str | None:
        """Return the nodes that refused pods, for the lease, once the engine knows those that the lease had before."""
        return node_backoffs.written(self.loop.backoffs(), self.clock) if self.loop.cycles else None

    def _dependencies(self) -> Dependencies:
        return Dependencies(
            self.settings,
            self.client,
            self.cache,
            self.event_source,
            self.clock,
            self.loop,
            self.forecast_scores,
            self.metrics,
            self.outlooks,
        )

    @contextlib.asynccontextmanager
    async def _controlling(self, supervisor: TaskSupervisor, feed: UsageFeed | None) -> AsyncIterator[None]:
        """Run the controllers of our resources, and kopf in its thread."""
        options = ReconcileOptions(
            self.settings.scheduler_names[0],
            reclaim=self.settings.job_pods_reclaim,
            limits=StartLimits(self.settings.jobs.start_seconds, self.settings.jobs.create_seconds),
            starts=StartReporter(self.cache, self.reporting.recorder, self.metrics, self.clock),
        )
        if self._phase_learning is not None:
            options = replace(options, learned=self._phase_learning.phases_for)
        controllers = Controllers(
            self.client,
            self.cache,
            self.decisions,
            self.clock,
            readings=feed,
            applicability=self.models.applicability,
            options=options,
        )
        self.models.changed = controllers.models_changed
        stop = asyncio.Event()
        controlling = supervisor.start(controllers.run(stop), "controllers")
        handing = supervisor.start(self._run_kopf(controllers), "kopf")
        try:
            yield
        finally:
            stop.set()
            handing.cancel()
            quiet_kopf(logging.CRITICAL)  # its messages about closed connections are useless
            await asyncio.wait({controlling, handing}, timeout=DRAIN_SECONDS)

    @contextlib.asynccontextmanager
    async def _consolidating(self, supervisor: TaskSupervisor) -> AsyncIterator[None]:
        """Plan capacity and free nodes, or undo the open work of an earlier operator that did.

        Open work is undone before the lease is released.
        """
        working = [
            supervisor.start(self._consolidate(), "consolidation"),
            supervisor.start(self._provision(), "provisioning"),
        ]
        try:
            yield
        finally:
            for work in working:
                work.cancel()
            await asyncio.wait(working)
            if self._consolidator is not None:
                await self._consolidator.stop()

    async def _consolidate(self) -> None:
        """Start after the first decisions: the waiting pods are known only then."""
        await self._begun()
        if self.settings.consolidation.enabled or left_behind(self.cache):
            await self._freeing().run()

    async def _provision(self) -> None:
        """Plan capacity if it is configured."""
        await self._begun()
        if self.settings.provisioning is not None:
            self._freeing()
            await self._capacity(self.settings.provisioning).run()

    async def _begun(self) -> None:
        """Return after the first decisions, and after the modules for capacity are loaded outside the loop's thread."""
        await self.loop.caught_up()
        if self.settings.provisioning is not None:
            await asyncio.to_thread(importlib.import_module, "cotide_operator.provisioning.controller")

    def _freeing(self) -> Consolidator:
        """Return the consolidator, which frees nodes and knows the free ones: one for both users."""
        if self._consolidator is None:
            from cotide_operator.consolidation.controller import Consolidator  # heavy: loads kernels

            self._consolidator = Consolidator(self._consolidation_dependencies(), self.settings.consolidation)
        return self._consolidator

    def _capacity(self, settings: ProvisioningSettings) -> Provisioner:
        """Return the planner of capacity."""
        if self._provisioner is None:
            from cotide_kube.official import connect
            from cotide_operator.provisioning.controller import Provisioner, ProvisioningDependencies

            ledger = self.settings.ledger
            outcomes = OutcomeFile(ledger.directory if ledger is not None else None, self.metrics, PROVISIONING)
            dependencies = ProvisioningDependencies(
                client=self.client,
                cache=self.cache,
                clock=self.clock,
                recorder=self.reporting.recorder,
                metrics=self.metrics,
                engine=lambda: self.loop.scheduler,
                pods=self.event_source.pods,
                is_current=self.event_source.is_current,
                note=outcomes.note,
                namespace=self.settings.leader_election.namespace,
                drains=lambda: self._consolidator,
                official=lambda: connect(self._options.kubeconfig, self._options.context, retries=False),
                prometheus=None if self.settings.metrics_source is None else self.settings.metrics_source.prometheus,
            )
            self._provisioner = Provisioner(dependencies, settings)
        return self._provisioner

    def _consolidation_dependencies(self) -> ConsolidationDependencies:
        from cotide_operator.consolidation.controller import ConsolidationDependencies

        ledger, capacity = self.settings.ledger, self.settings.provisioning
        outcomes = OutcomeFile(ledger.directory if ledger is not None else None, self.metrics)
        counts = capacity is not None and capacity.mode == "act"
        return ConsolidationDependencies(
            client=self.client,
            cache=self.cache,
            decisions=self.decisions,
            clock=self.clock,
            recorder=self.reporting.recorder,
            metrics=self.metrics,
            engine=lambda: self.loop.scheduler,
            pods=self.event_source.pods,
            forecaster=lambda: self.loop.scheduler.qos_forecaster,
            note=outcomes.note,
            scheduler_names=self.settings.scheduler_names,
            risk_threshold=self.settings.qos.risk_threshold_probability,
            slot_seconds=self.settings.slot_seconds,
            allowed=self._capacity(capacity).allowed if counts and capacity is not None else None,
        )

    async def _run_kopf(self, controllers: Controllers) -> None:
        """Run kopf once the first pods are bound: bind first, reconcile when kopf is up."""
        await self.loop.caught_up()
        await self.binder.calm(KOPF_WAITS_SECONDS)
        await self._kopf.run(controllers)

    def _publisher(self) -> ReclaimedPublisher:
        """Return the publisher of reclaimed capacity; if that is off, it removes former values."""
        return ReclaimedPublisher(
            self.client,
            self.cache,
            self.outlooks,
            self.clock,
            holdings_of=lambda node: holdings(self.loop.scheduler.state, node) if self.loop.fully_synced else None,
            how=Publication(self.settings.reclaimed, self.settings.publishes_reclaimed, self.settings.slot_seconds),
            recorder=self.reporting.recorder,
            metrics=self.metrics,
        )

    def _resizer(self, feed: UsageFeed | None) -> PhaseResizer:
        return PhaseResizer(
            self.client,
            self.cache,
            self._room_of,
            self.event_source.expect_size,
            clock=self.clock,
            metrics=self.metrics,
            usage_of=feed.usage_of if feed is not None else lambda _: None,
            nudge=self.loop.nudge,
        )

    def _room_of(self, node: str) -> Amounts:
        """Return the room of a node that the engine counts as free."""
        columns = self.loop.scheduler.state.columns
        row = columns.row_of.get(node)
        return Amounts(0, 0) if row is None else Amounts(columns.free_of(CPU, row), columns.free_of(MEMORY, row))

    def _make_health(self) -> HealthServer:
        access = AccessReviews(self.client.unfenced())
        return HealthServer(
            self.metrics,
            self.decisions,
            self._unready,
            self._refresh,
            access=access,
            notes=self._notes,
            dead=self._dead,
        )

    def _make_client(self) -> KubeClient:
        return KubeClient(
            self._credentials,
            max_connections=2 * self.settings.concurrent_binds + CONNECTIONS_BESIDE_BINDS,
            timeout_seconds=TIMEOUT_SECONDS,
            read_only=self.settings.shadow,
        )

    def _make_reporting(self, config: SchedulerConfig) -> Reporting:
        """Create the reporters, which carry results to the API server and the decision store."""
        dependencies = ReportingDependencies(
            self.client,
            self.dispatcher,
            self.clock,
            self.cache,
            self.event_source,
            self.decisions,
            self.forecast_scores,
            self.metrics,
            self.settings.scheduler_names,
        )
        return make_reporting(config, self.settings.slot_seconds, dependencies)

    def _make_loop(self, config: SchedulerConfig) -> SchedulingLoop:
        """Create the engine and its loop, after everything that it reads, reports to and records in."""
        return SchedulingLoop(
            Scheduler(config, self.models),
            cache=self.cache,
            event_source=self.event_source,
            outcomes=self.reporting.outcomes,
            clock=self.clock,
            record=records(self._ledger, self.extender.follower if self.extender is not None else None),
            watcher=self._retraining,
            event_forecaster=self._make_event_forecaster(),
            remake=self._remake_engine,
        )

    def _make_binder(self) -> Binder:
        """Create the binder, which carries decisions out, after the loop, which receives refusals."""
        volumes = self.settings.volumes
        return (ShadowBinder if self.settings.shadow else Binder)(
            self.client,
            self.cache,
            (self._handover.note, self.reporting.outcomes.reported, self.loop.refused),
            Evictor(self.client, self.cache, self.reporting.nominator, self.clock),
            concurrency=self.settings.concurrent_binds,
            volumes=VolumeBinder(self.client, self.cache, self.event_source.volumes, volumes.bind_timeout_seconds),
        )

    def _make_models(self) -> ModelStore:
        models = self.settings.models
        return ModelStore(
            models.directory,
            emit=self._emit,
            metrics=self.metrics,
            keep=self._ledger.keep_model if self._ledger is not None else None,
            kept_models=models.retraining.kept_models if models.retraining.enabled else None,
        )

    def _make_webhook(self) -> AdmissionWebhook | None:
        if not self.settings.admission.enabled:
            return None  # and its modules stay unloaded
        from cotide_operator.webhooks.admission.webhook import make_webhook

        return make_webhook(self.settings, self.client.unfenced(), self.cache, self.metrics)

    def _make_extender(self, config: SchedulerConfig) -> Extender | None:
        if not self.settings.extender.enabled:
            return None
        from cotide_operator.webhooks.extender.extender import Extender, ExtenderDependencies

        needs = ExtenderDependencies(
            client=self.client.unfenced(),
            credentials=self._credentials,
            cache=self.cache,
            clock=self.clock,
            metrics=self.metrics,
            hand_over=self._assist,
        )
        return Extender(self.settings.extender, config, self.settings.scheduler_names, needs)

    def _rushed(self) -> bool:
        """Whether bindings are requested, by us or by kube-scheduler: low-priority writes then wait."""
        return self.binder.rushed or (self.extender is not None and self.extender.rushed)

    def _assist(self, outcome: PodAssumed | BindRefused | Decision) -> None:
        """Process a decision of the extender. While this replica leads, the engine counts it and the ledger records
        it."""
        if not self._leading:
            return
        if isinstance(outcome, Decision):
            self._assisted.answered(outcome)
        else:
            self.loop.emit(outcome)

    def _kept_in(self, store: str) -> LearnedStore | None:
        """Return the store in which learned data outlives this process; None for memory only."""
        if store == "directory" and self.settings.models.directory is not None:
            return DirectoryStore(self.settings.models.directory / LEARNED)
        if store == "configMaps":
            return ConfigMapStore(self.client, self.settings.leader_election.namespace)
        return None

    def _make_phase_learning(self) -> PhaseLearning | None:
        settings = self.settings.phases
        if not settings.learn:
            return None
        kept = self._kept_in(settings.store)
        return PhaseLearning(settings, self.cache, clock=self.clock, metrics=self.metrics, kept=kept)

    def _make_habits(self, kept: LearnedStore | None) -> RunTimeHabits | None:
        settings = self.settings.models.retraining
        if not (settings.enabled and settings.run_time_habits):
            return None
        return RunTimeHabits(
            self.forecast_scores,
            self.metrics,
            kept=kept,
            keep_seconds=settings.keep_seconds,
            namespaces=lambda: self.cache.namespaces,
            now=self.clock.now,
            predictor=settings.run_time_predictor,
            challenger=settings.run_time_challenger,
            uid_of=self._uid_of_namespace,
        )

    def _make_event_forecaster(self) -> EventForecaster | None:
        """Return the forecasters next to the engine's: run times, request rates, both or None."""
        settings = self.settings
        forecasters: list[EventForecaster] = [] if self._habits is None else [self._habits]
        if settings.forecasts_rates:
            quantile = settings.request_rates.quantile
            forecasters.append(RateForecaster(settings.slot_seconds, quantile, self.metrics, self.clock.now))
        if len(forecasters) < 2:
            return forecasters[0] if forecasters else None
        return CompositeForecaster(*forecasters)

    def _make_retraining(self, kept: LearnedStore | None) -> Retraining | None:
        settings = self.settings.models.retraining
        if not settings.enabled:
            return None

        def learn(learner: str) -> QosLearning:
            return QosLearning(
                settings,
                self.models,
                learner,
                threshold=self.settings.qos.risk_threshold_probability,
                slot_seconds=self.settings.slot_seconds,
                seed=self.settings.seed,
                metrics=self.metrics,
                kept=kept,
                is_there=lambda service: not self.cache.synced or service in self.cache.workloads,
            )

        return Retraining(
            settings,
            self.models,
            seed=self.settings.seed,
            metrics=self.metrics,
            learn=learn,
            kept=kept,
            is_there=lambda learner: not self.cache.is_gone(learner),
            uid_of=self._uid_of_namespace,
        )

    def _uid_of_namespace(self, name: str) -> str:
        namespace = self.cache.namespaces.get(name)
        return namespace.metadata.uid if namespace is not None else ""

    async def _flush(self, ledger: LedgerFile) -> None:
        while True:
            await asyncio.sleep(LEDGER_FLUSH_SECONDS)
            ledger.flush()

    def _limit_of(self, workload_key: str) -> float | None:
        workload = self.loop.scheduler.state.workload(workload_key)
        return workload.latency_p95_milliseconds if workload is not None else None

    def _remake_engine(self) -> Scheduler:
        """Return a new engine over the shared state, which is emptied for it."""
        failed = self.loop.scheduler
        failed.state.clear()
        return Scheduler(failed.config, self.models, failed.state)

    def _emit(self, event: Event) -> None:
        self.loop.emit(event)
        if self.extender is not None and isinstance(event, ModelsChanged):
            self.extender.use(self.models.qos(event.qos))

    def _ready(self) -> None:
        self._deciding = True
        # Exempt the listed objects: otherwise each full collection blocks a cycle for a tenth of a second. No
        # collection
        # happens here, which would delay the first bindings: few reference cycles exist by now.
        gc.freeze()
        _LOG.info(
            "deciding with policy %s: %d nodes, %d pods",
            self.settings.policy,
            len(self.cache.nodes),
            len(self.cache.pods),
        )

    def _unready(self) -> list[str]:
        """Return the obstacles for /readyz: a ready standby stays in service while it takes over."""
        takes_over = self._took_over is not None and time.monotonic() - self._took_over < TAKE_OVER_SECONDS
        return self._unlisted() if takes_over else self._missing()

    def _unlisted(self) -> list[str]:
        """Return what a standby still waits for: after listing everything it is ready to take over."""
        if self._informers.stage:
            return [self._informers.stage]
        missing: list[str] = [f"the first list of {kind}" for kind in self.cache.missing()]
        if self.admission is not None and not self.admission.listening:
            missing.append("the admission webhook's certificate")
        if self.extender is not None and not self.extender.listening:
            missing.append("the extender's certificate")
        return missing

    def _missing(self) -> list[str]:
        """Return what this replica still waits for before it does all of its present work."""
        missing = self._unlisted()
        if missing or not self._leading:
            return missing
        if not self._deciding:
            missing.append("the first decision cycle")
        if not (self.settings.shadow or self._kopf.was_ready or self._kopf.ready):
            missing.append("kopf")
        return missing

    def _dead(self) -> list[str]:
        """Return the faults that only a new process can repair."""
        return ["kopf does not answer"] if self._leading and self._kopf.stuck else []

    def _notes(self) -> list[str]:
        """Return the faults of a working replica."""
        return [self._ledger.trouble] if self._ledger is not None and self._ledger.trouble else []

    def _refresh(self) -> None:
        kinds = (*KINDS, *OPTIONAL_KINDS)
        for kind in kinds:
            self.metrics.mirror_objects.labels(kind).set(len(self.cache.objects(kind)))
        self._quarantine_reporter.refresh(kinds)
        self.metrics.longest_block.set(self._blocks.longest_seconds())

"""Places batch and gratis pods by their requests, and acts on the overloads that a monitor finds.

Called by `cycle.Scheduler` under every policy; `slack_scheduler` builds on it. If a pod finds no node, less important
pods leave for it (`preemption`). With a monitor, overloaded nodes are relieved, and cordoned ones get no batch or
gratis pod. Invariant: an online pod leaves only for an online pod of higher priority, and no monitor keeps it off a
node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cotide_core.config import SchedulerConfig
from cotide_core.events import EvictRefused, NodeUpserted, Pod, ServiceSampled
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import Evict, NodeVerdict, WaitReason
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.placement.placer import OpenNodes, Placement, Placer, Upcoming
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.reclaiming.latency_relief import ArrivalRelief, LatencyRelief
from cotide_core.reclaiming.latency_trend import TrendRelief
from cotide_core.reclaiming.overload_monitor import Alarms, NoMonitor, OverloadMonitor
from cotide_core.reclaiming.preemption.room_making import RoomMaking
from cotide_core.reclaiming.rising_relief import RisingRelief
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.state.host_load import ONLINE_RANK
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot


class RequestedCapacity(RoomMaking):
    """Requests, evictions in flight and the monitor of one engine.

    Parameters
    ----------
    config : its ``hierarchical`` knobs, and the seed of the random choices where these ask for them.
    expected : predicted run seconds (p50, on its node) of bound jobs, by pod key; read when victims are weighed.
    mates : returns the pods that leave together with a pod of a gang.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        state: ClusterState,
        placer: Placer,
        expected: Mapping[str, float],
        mates: Callable[[Pod], Sequence[PodRecord]] = lambda _: (),
    ) -> None:
        super().__init__(config, state, placer)
        self._expected = expected
        watches = placer.policy.monitor
        self._monitor = OverloadMonitor(self._config, self._generator) if watches else NoMonitor()
        self._latencies = LatencyRelief(self._config) if placer.policy.relieves_latency else None
        watched = self._latencies is not None
        self._rising = RisingRelief(self._config) if watched and self._config.relieves_rising else None
        self._trend = TrendRelief(self._config) if watched and self._config.relieves_trend else None
        self._arrivals = ArrivalRelief()
        self._mates = mates
        self._lost_of_gang: dict[str, float] = {}
        """What an eviction of a pod of a gang throws away, since `begin`: the same for each of its pods."""
        self.kept_off: Callable[[QueuedPod], Booleans | None] = lambda _: None
        """Returns for a pod the (N,) nodes that are reserved for others; None if no node is."""

    def begin(self, now: float, forecaster: QosForecaster) -> list[Evict]:
        """Update to ``now``: end what the time ends, and return the monitor's evictions."""
        self._lost_of_gang.clear()
        self._update_claims(now)
        self._end_cordons(now)
        return self._relieve_nodes(now, forecaster)

    @property
    def watches_latencies(self) -> bool:
        """Whether the capacity needs measured latencies."""
        return self._latencies is not None

    def sampled(self, event: ServiceSampled, now: float) -> None:
        """Apply a measured latency, after the state did."""
        if self._latencies is not None:
            self._latencies.sampled(event, self._state, now)
        if self._rising is not None:
            self._rising.sampled(event, self._state, now)
        if self._trend is not None:
            self._trend.sampled(event, self._state, now)

    def arrived(self, at_risk: Mapping[str, str], forecaster: QosForecaster, now: float) -> list[Evict]:
        """Return the evictions on nodes that get online pods although a latency limit is predicted to break there.

        Parameters
        ----------
        at_risk : keys of the pods that this cycle binds so, by node.
        """
        accepted = self._placer.accepted
        return self._arrivals.relieve(at_risk, self._state, self._evictions, self._lost, forecaster, accepted, now)

    def _relieve_nodes(self, now: float, forecaster: QosForecaster) -> list[Evict]:
        """Return the evictions of the monitor and of the latency reliefs. Each notes its victims, so no pod is evicted
        twice.
        """
        out = self._monitor.relieve(self._state, self._evictions, self._lost, now)
        if self._latencies is not None:
            state, evictions = self._state, self._evictions
            out += self._latencies.relieve(state, evictions, self._lost, self._remaining, forecaster, now)
            if self._rising is not None:
                out += self._rising.relieve(state, evictions, self._lost, self._remaining, forecaster, now)
            if self._trend is not None:
                out += self._trend.relieve(state, evictions, self._lost, self._remaining, forecaster, now)
        return out

    def _next_relief(self, now: float) -> float:
        latencies = math.inf if self._latencies is None else self._latencies.next_change(now)
        return min(self._monitor.next_change(now), latencies)

    def gone(self, key: str) -> None:
        """Forget a pod that is gone or ended."""
        self._forget_claim(key)

    def take(self, event: EvictRefused | NodeUpserted, now: float) -> None:
        """Apply an event about evictions or cordons: a victim stays, or a node carries a cordon of an earlier run."""
        if isinstance(event, NodeUpserted):
            until = event.node.cordoned_until_seconds
            if until is not None:
                self._monitor.adopt(event.node.name, until, now)
        else:
            self._refuse(event, now)

    def next_change(self, now: float) -> float:
        """Return when `begin` has something to do by itself, not before ``now``; infinite for never."""
        if self._awaited or self._gives_way:
            return now
        moments = (self._evictions.next_change(now), self._nominations.next_change(), self._next_relief(now))
        return max(now, min(moments))

    def place(self, snapshot: Snapshot, entry: QueuedPod, forecaster: QosForecaster, upcoming: Upcoming) -> Placement:
        """Choose a node for a pod, or return the reason why it gets none."""
        if not len(self._nominations):
            return self._place(snapshot, entry, forecaster, upcoming)
        return self._place_beside_claims(snapshot, entry, forecaster, upcoming)

    def _place(self, snapshot: Snapshot, entry: QueuedPod, forecaster: QosForecaster, upcoming: Upcoming) -> Placement:
        shape = entry.shape
        if shape.online or not (self._monitor.keeps_off(self._now) or self.kept_off(entry) is not None):
            return self._placer.place(snapshot, shape, forecaster, upcoming)
        return self._placer.place_among(self.open_nodes(snapshot, entry), snapshot, shape, forecaster)

    def open_nodes(self, snapshot: Snapshot, entry: QueuedPod) -> OpenNodes:
        """Return the nodes that have room for a pod now, whatever a guard decides."""
        shape = entry.shape
        kept = None if shape.online else self.kept_off(entry)
        if shape.online or not (self._monitor.keeps_off(self._now) or kept is not None):
            return self._placer.fitting(snapshot, shape)
        cordoned = self._monitor.cordoned(self._state, self._now)
        fitting = self._placer.fitting(snapshot, shape)
        kept = np.zeros_like(cordoned) if kept is None else kept & ~cordoned
        refused = (
            *fitting.refused,
            *self._cordoned_ones(snapshot, fitting.rows & cordoned),
            *kept_for_gang(snapshot, fitting.rows & kept),
        )
        return OpenNodes(fitting.rows & ~cordoned & ~kept, fitting.scores, refused)

    def _room(self, entry: QueuedPod) -> Floats | None:
        if entry.shape.fit.physical is None:
            return None
        return self._state.host_load.physical() - self._held()

    def _allowed(self, entry: QueuedPod) -> Booleans:
        size, kept = self._state.columns.size, None if entry.shape.online else self.kept_off(entry)
        open_rows = np.ones(size, np.bool_) if kept is None else ~kept
        if not entry.shape.online and self._monitor.keeps_off(self._now):
            open_rows &= ~self._monitor.cordoned(self._state, self._now)
        return open_rows

    def _has_slack(self, entry: QueuedPod, row: int) -> bool:
        del entry, row
        return True

    def ask(self, record: PodRecord, now: float) -> bool:
        """Note that a pod is asked to leave for a reason of the caller's; False where it may not be asked now."""
        if not self._evictions.open(record, now):
            return False
        self._evictions.ask(record, now)
        return True

    @property
    def alarms(self) -> Alarms:
        """Which nodes are overloaded and which are cordoned, at the last `begin`."""
        return self._monitor.alarms

    @property
    def by_requests(self) -> bool:
        """Whether requests alone bound batch and gratis pods."""
        return True

    def ceiling(self) -> Integers:
        """Return (2, N) millicores and bytes that batch and gratis pods may hold together: all that is allocatable."""
        return self._state.host_load.physical().astype(np.int64)

    def leave_out(self, shape: Shape, may: Booleans) -> None:
        """Set (N,) ``may`` to False where pods of a shape get nothing now even if others end: on cordoned nodes."""
        del shape
        if self._monitor.keeps_off(self._now):
            may &= ~self._monitor.cordoned(self._state, self._now)

    def admits(self, entry: QueuedPod, row: int) -> bool:
        """Whether a row has room for a pod at this moment apart from its requests: whether it is not cordoned."""
        del entry
        return not self._monitor.keeps_off(self._now) or not self._monitor.cordoned(self._state, self._now)[row]

    def take_eased(self) -> bool:
        """Whether some node has more room than at the last call, by a forecast or a cordon that ended."""
        eased, self._eased = self._eased, False
        return eased

    def _end_cordons(self, now: float) -> None:
        for name in self._monitor.end_cordons(now):
            self._relieve(name)

    def _relieve(self, name: str) -> None:
        row = self._state.columns.row_of.get(name)
        if row is not None:
            self._relieve_row(row)

    def _relieve_row(self, row: int) -> None:
        self._state.columns.touch(row, relief=True)
        self._state.relieved.add(row)
        self._eased = True

    def _lost(self, record: PodRecord) -> float:
        """Return the core seconds of work that an eviction of a pod throws away.

        At most its predicted run time (p50): beyond it, a job's past is no evidence of its worth. A gang loses the work
        of all its members.
        """
        gang = record.pod.gang
        if gang is None:
            return self._lost_alone(record)
        lost = self._lost_of_gang.get(gang.key)
        if lost is None:
            lost = sum(map(self._lost_alone, self._mates(record.pod)), self._lost_alone(record))
            self._lost_of_gang[gang.key] = lost
        return lost

    def _lost_alone(self, record: PodRecord) -> float:
        started = record.pod.started_seconds
        ran = 0.0 if started is None else max(0.0, self._now - started)
        worked = min(ran, self._expected.get(record.pod.key, np.inf))
        return worked * self._state.demand(record.pod.requests).millicores / 1000.0

    def _remaining(self, record: PodRecord) -> float:
        """Return the seconds that a pod is still expected to run.

        It runs up to its predicted run time (p50). An overdue pod runs for as long again as it is overdue, and a pod
        without a forecast for as long as it has run.
        """
        started = record.pod.started_seconds
        ran = 0.0 if started is None else max(0.0, self._now - started)
        return abs(self._expected.get(record.pod.key, 0.0) - ran)

    def _held(self) -> Integers:
        """Return (2, N) what batch and gratis pods hold."""
        return np.asarray(self._state.columns.held[:ONLINE_RANK, :, : self._state.columns.size].sum(axis=0))

    def _cordoned_ones(self, snapshot: Snapshot, rows: Booleans) -> list[NodeVerdict]:
        if not rows.any():
            return []
        return [self._cordoned_verdict(int(rows.sum()), snapshot.name(int(rows.argmax())))]

    def _cordoned_verdict(self, nodes: int, example: str) -> NodeVerdict:
        message = f"cordoned after {self._config.flap_episodes} overloads"
        return NodeVerdict(nodes, message, WaitReason.INSUFFICIENT_SLACK, example)


def kept_for_gang(snapshot: Snapshot, rows: Booleans) -> list[NodeVerdict]:
    """Return the verdict on (N,) rows that are kept for a gang; the gang has no name in it, since it may be another
    tenant's.
    """
    if not rows.any():
        return []
    message = "kept for a gang that has waited longer"
    return [NodeVerdict(int(rows.sum()), message, WaitReason.INSUFFICIENT_SLACK, snapshot.name(int(rows.argmax())))]

"""The findings of the overload monitor, for people: a count of overloaded slots, and cordons on the node.

`decision_reporter` calls it after each decision cycle. It makes no decisions. A cordon is noted on its node, so that it
outlives a restart. Invariant: a node counts at most once in a slot, whatever the number of its cycles. Each cordon has
one event at its begin and one at its end, even when a restart lies in between.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from cotide_core.config import HierarchicalConfig
from cotide_core.errors import ClusterError
from cotide_core.reclaiming.overload_monitor import Alarms
from cotide_core.units import format_seconds
from cotide_kube.client import KubeClient
from cotide_kube.objects import NodeObject
from cotide_kube.timestamps import format_timestamp
from cotide_operator.clock import Clock
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.event_recorder import EventRecorder
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher
from cotide_operator.translation.pods_and_nodes import CORDON_ANNOTATION

_LOG = logging.getLogger(__name__)

CORDONED: Final = "OverloadCordon"
OPENED: Final = "OverloadCordonEnded"


class OverloadReporter:
    """Reports the alarms of one engine.

    Parameters
    ----------
    config : the monitor's settings, for the sentences.
    slot_seconds : length of a slot on the operator's clock.
    nodes : the latest node objects by name.
    """

    def __init__(
        self,
        client: KubeClient,
        dispatcher: ApiDispatcher,
        clock: Clock,
        recorder: EventRecorder,
        metrics: Metrics,
        config: HierarchicalConfig,
        slot_seconds: float,
        nodes: Mapping[str, NodeObject],
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._clock = clock
        self._recorder = recorder
        self._metrics = metrics
        self._config = config
        self._slot_seconds = slot_seconds
        self._nodes = nodes
        self._slot = -1
        self._counted: set[str] = set()
        self._cordoned: dict[str, float] = {}

    def look(self, alarms: Alarms, now: float) -> None:
        """Take the alarms of one cycle."""
        slot = int(now // self._slot_seconds)
        if slot != self._slot:
            self._slot, self._counted = slot, set()
        new = set(alarms.over) - self._counted
        if new:
            self._metrics.overload_slots.inc(len(new))
            self._counted |= new
        cordoned = dict(alarms.cordoned)
        self._metrics.overloaded_nodes.set(len(alarms.over))
        self._metrics.cordoned_nodes.set(len(cordoned))
        if cordoned == self._cordoned:
            return
        for name, until in cordoned.items():
            if self._cordoned.get(name) != until and name in self._nodes:
                self._begins(name, until, now)
        for name in self._cordoned.keys() - cordoned.keys():
            if name in self._nodes:
                self._report(name, "Normal", OPENED, f"Node {name} is open for batch and gratis pods again")
                self._note(name, None)
        self._cordoned = cordoned

    def _begins(self, name: str, until: float, now: float) -> None:
        written = format_timestamp(self._clock.to_wall(until))
        if self._nodes[name].metadata.annotations.get(CORDON_ANNOTATION) == written:
            return  # an earlier run began and reported it
        self._report(name, "Warning", CORDONED, self._sentence(until - now))
        self._note(name, written)

    def _report(self, name: str, kind: str, reason: str, message: str) -> None:
        self._recorder.node(name, self._nodes[name].metadata.uid, kind, reason, message)

    def _note(self, name: str, until: str | None) -> None:
        async def write() -> None:
            # It goes into the status, the only part of a node that the operator may change; a kubelet does the same.
            body = {"metadata": {"annotations": {CORDON_ANNOTATION: until}}}
            try:
                await self._client.patch(f"/api/v1/nodes/{name}/status", body)
            except ClusterError as error:  # the note only serves restarts: the cordon itself holds
                self._metrics.notes_failed.inc()
                _LOG.debug("the cordon of node %s was not noted: %s", name, error)

        if not self._dispatcher.submit(("cordon", name), write, ""):
            self._metrics.notes_failed.inc()

    def _sentence(self, seconds: float) -> str:
        config = self._config
        window = format_seconds(config.flap_window_seconds)
        return (
            f"Overloaded {config.flap_episodes} times within {window}: no batch and no gratis pod is placed here for"
            f" {format_seconds(seconds)}"
        )

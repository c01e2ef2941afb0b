"""What the overload monitor sees, for people: overloaded slots counted, cordons told on the node.

Called by `outcomes` after each decision cycle. Decides nothing. Invariant: a node counts at most once a slot, whatever
the number of cycles in it; each cordon has one event when it begins and one when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cotide_core.config import HierarchicalConfig
from cotide_core.overload import Alarms
from cotide_core.units import format_seconds
from cotide_operator.recorder import Recorder
from cotide_operator.telemetry import Telemetry

CORDONED: Final = "OverloadCordon"
OPENED: Final = "OverloadCordonEnded"


class AlarmWatch:
    """Follows the alarms of one engine.

    Parameters
    ----------
    config : the monitor's knobs, for the sentences.
    slot_seconds : length of a slot on the operator's clock.
    uid_of : tells the uid of a node by its name.
    """

    def __init__(
        self,
        recorder: Recorder,
        telemetry: Telemetry,
        config: HierarchicalConfig,
        slot_seconds: float,
        uid_of: Callable[[str], str],
    ) -> None:
        self._recorder = recorder
        self._telemetry = telemetry
        self._config = config
        self._slot_seconds = slot_seconds
        self._uid_of = uid_of
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
            self._telemetry.overload_slots.inc(len(new))
            self._counted |= new
        cordoned = dict(alarms.cordoned)
        self._telemetry.overloaded_nodes.set(len(alarms.over))
        self._telemetry.cordoned_nodes.set(len(cordoned))
        if cordoned == self._cordoned:
            return
        for name, until in cordoned.items():
            if self._cordoned.get(name) != until:
                self._recorder.node(name, self._uid_of(name), "Warning", CORDONED, self._sentence(until - now))
        for name in self._cordoned.keys() - cordoned.keys():
            words = "is open for batch and gratis pods again"
            self._recorder.node(name, self._uid_of(name), "Normal", OPENED, f"Node {name} {words}")
        self._cordoned = cordoned

    def _sentence(self, seconds: float) -> str:
        config = self._config
        window = format_seconds(config.flap_window_seconds)
        return (
            f"Overloaded {config.flap_episodes} times within {window}: no batch and no gratis pod is placed here for"
            f" {format_seconds(seconds)}"
        )

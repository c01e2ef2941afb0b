"""Evictions under way: requested, refused, or unanswered for too long.

Owned by `slack_scheduler`. A victim holds its amounts until it is gone, and is never asked twice. States of an
eviction::

    asked --PodDeleted, or it ended--> gone
      |--EvictRefused--> refused: not asked again for a while, each time for twice as long
      |                  (a refusal for another reason: as if it had never been asked)
      |--time--> stays: may be asked again
"""

from __future__ import annotations

from collections.abc import KeysView
from typing import Final

from cotide_core.config import HierarchicalConfig
from cotide_core.events import EvictRefused
from cotide_core.state.cluster_state import PodRecord

FOREVER: Final = float("inf")
LONGEST_WAIT: Final = 32
"""Largest growth of the wait after a refusal, in first waits (chosen: 16 minutes with 30 s; budgets do get
loosened).
"""


class Evictions:
    """The evictions asked for, by pod key."""

    def __init__(self, config: HierarchicalConfig) -> None:
        self._config = config
        self._asked: dict[str, tuple[str, float]] = {}
        self._refused: dict[str, tuple[str, float, float]] = {}
        """uid, end of the wait, and its length."""

    def ask(self, record: PodRecord, now: float) -> None:
        """Note that a pod is being evicted."""
        self._asked[record.pod.key] = (record.pod.uid, now)

    def copy(self) -> dict[str, tuple[str, float]]:
        """Return the evictions asked for."""
        return dict(self._asked)

    def take_back(self, asked: dict[str, tuple[str, float]]) -> None:
        """Restore the evictions of a `copy`."""
        self._asked = dict(asked)

    def gone(self, key: str) -> None:
        """Note that a pod holds nothing any more."""
        self._asked.pop(key, None)
        self._refused.pop(key, None)

    def refuse(self, event: EvictRefused, now: float) -> bool:
        """Note a refusal; False if it is not about an eviction of ours."""
        asked = self._asked.get(event.key)
        if asked is None or asked[0] != event.uid:
            return False
        del self._asked[event.key]
        if not event.retry:
            first = self._config.eviction_retry_seconds
            uid, _, waited = self._refused.get(event.key, ("", 0.0, 0.0))
            wait = min(2 * waited, LONGEST_WAIT * first) if uid == event.uid else first
            self._refused[event.key] = (event.uid, now + wait, wait)
        return True

    def leaving(self, record: PodRecord) -> bool:
        """Whether a pod is on its way out."""
        asked = self._asked.get(record.pod.key)
        return record.pod.terminating or (asked is not None and asked[0] == record.pod.uid)

    def open(self, record: PodRecord, now: float) -> bool:
        """Whether a pod may be asked now."""
        refused = self._refused.get(record.pod.key)
        waits = refused is not None and refused[0] == record.pod.uid and now < refused[1]
        return not waits and not self.leaving(record)

    def asked(self) -> KeysView[str]:
        """Return the keys of the pods that were asked and are not gone, in the order of asking."""
        return self._asked.keys()

    def expire(self, now: float) -> list[str]:
        """Give up on the pods that stay; returns their keys."""
        if not self._asked and not self._refused:  # as in most cycles
            return []
        timeout = self._config.eviction_timeout_seconds
        late = [key for key, (_, since) in self._asked.items() if since + timeout <= now]
        for key in late:
            del self._asked[key]
        # Kept beyond its end: a refusal soon after belongs to the same series.
        memory = LONGEST_WAIT * self._config.eviction_retry_seconds
        self._refused = {key: item for key, item in self._refused.items() if item[1] + memory > now}
        return late

    def next_change(self, now: float) -> float:
        """Return when the next eviction is given up or may be asked again; infinite for never."""
        if not self._asked and not self._refused:
            return FOREVER
        asked = min((since for _, since in self._asked.values()), default=FOREVER)
        again = min((until for _, until, _ in self._refused.values() if until > now), default=FOREVER)
        return min(asked + self._config.eviction_timeout_seconds, again)

"""Pods that are translated before the first collection.

`event_source` owns it until its first collection. Before that, while lists arrive in pages or another replica leads,
there is spare time; work that is done then does not delay the first decision. Invariant: a stored translation equals a
translation at that moment, since the owner calls `repeat` at each change.
"""

from __future__ import annotations

from collections.abc import Callable

from cotide_core.events import Pod
from cotide_operator.translation.pod_times import PodTimes

Seen = tuple[PodTimes, Pod]


class Pretranslator:
    """Translations made ahead.

    Parameters
    ----------
    translate : callable
        Returns the sighting and the translation of the pod of a key in its present state; None without such a pod.
    """

    def __init__(self, translate: Callable[[str], Seen | None]) -> None:
        self._translate = translate
        self._done: dict[str, Seen] = {}
        self._open: dict[str, None] = {}

    def work(self, most: int) -> bool:
        """Translate up to ``most`` pods; False without any work."""
        found = bool(self._open)
        for _ in range(min(most, len(self._open))):
            key, _ = self._open.popitem()
            seen = self._translate(key)
            if seen is not None:
                self._done[key] = seen
        return found

    def repeat(self, key: str) -> None:
        """Translate a pod, or translate it again: it is new, or its translation depends on a change."""
        self._done.pop(key, None)
        self._open[key] = None

    def repeat_all(self) -> None:
        """Translate all again: a change may affect any translation."""
        self._open.update(dict.fromkeys(self._done))
        self._done.clear()

    def take(self, key: str) -> Seen | None:
        """Return the translation of a pod; None if it is missing."""
        return self._done.pop(key, None)

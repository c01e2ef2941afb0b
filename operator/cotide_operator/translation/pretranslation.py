"""Pods that were translated before the first collection asks for them.

Owned by `event_source` until its first collection. There is time before that, while lists come in pages or another
replica leads; what was done in it need not be done when everybody waits for the first decision. Invariant: what is
taken is what a translation at that moment would give, because whoever hears of a change says `repeat`.
"""

from __future__ import annotations

from collections.abc import Callable

from cotide_core.events import Pod
from cotide_operator.translation.pod_times import PodTimes

Seen = tuple[PodTimes, Pod]


class Pretranslator:
    """Translations done ahead.

    Parameters
    ----------
    translate : callable
        Returns the sighting and the translation of the pod of a key as it is now; None when there is no such pod.
    """

    def __init__(self, translate: Callable[[str], Seen | None]) -> None:
        self._translate = translate
        self._done: dict[str, Seen] = {}
        self._open: dict[str, None] = {}

    def work(self, most: int) -> bool:
        """Translate up to so many pods; False when there was nothing to do."""
        found = bool(self._open)
        for _ in range(min(most, len(self._open))):
            key, _ = self._open.popitem()
            seen = self._translate(key)
            if seen is not None:
                self._done[key] = seen
        return found

    def repeat(self, key: str) -> None:
        """Translate a pod (anew): it is new, or something changed that its translation depends on."""
        self._done.pop(key, None)
        self._open[key] = None

    def repeat_all(self) -> None:
        """Translate all anew: something changed that any translation may depend on."""
        self._open.update(dict.fromkeys(self._done))
        self._done.clear()

    def take(self, key: str) -> Seen | None:
        """Return what was done of a pod; None when its translation is still to be done."""
        return self._done.pop(key, None)

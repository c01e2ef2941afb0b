"""The highest value of the recent past, in constant memory.

Used by `usage_feed` for services without a current rate. Two half windows approximate a sliding one: a value counts for
at least half the window and at most for all of it.
"""

from __future__ import annotations


class RecentPeak:
    """The highest value that was added within a window.

    Parameters
    ----------
    window_seconds : of the clock that `add` is called with.
    """

    def __init__(self, window_seconds: float) -> None:
        self._half_seconds = window_seconds / 2
        self._since = float("-inf")
        self._current = 0.0
        self._before = 0.0

    def add(self, value: float, now: float) -> None:
        """Add a value; ``now`` never falls."""
        age = now - self._since
        if age < self._half_seconds:
            self._current = max(self._current, value)
            return
        self._before = self._current if age < 2 * self._half_seconds else 0.0
        self._current, self._since = value, now

    @property
    def highest(self) -> float:
        """Return the highest value as of the last addition; 0 before the first."""
        return max(self._before, self._current)

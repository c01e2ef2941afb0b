"""Which key is forgotten of too many: the oldest of all, unless its namespace has less than its share.

Used by `keyed_states` and `live_mixture`. Without shares, a tenant with a new name for every Job, by a hash for
example, would push out the past of all others. Invariant: a namespace with fewer keys than the mean of all loses none.
"""

from __future__ import annotations

from cotide_predictors.run_time.habits.likeness import NAMESPACE_BYTES


class NamespaceShares:
    """Keys by namespace, which is their prefix; each namespace's last learned is at the end."""

    def __init__(self) -> None:
        self._own: dict[bytes, dict[bytes, None]] = {}
        self._count = 0
        self._largest = b""
        """The namespace that had the most keys at the last count."""

    def learned(self, key: bytes) -> None:
        """Note a key as its namespace's latest."""
        own = self._own.setdefault(key[:NAMESPACE_BYTES], {})
        self._count += key not in own
        own.pop(key, None)
        own[key] = None

    def forgotten(self, key: bytes) -> None:
        """Note that a key is gone."""
        namespace = key[:NAMESPACE_BYTES]
        own = self._own[namespace]
        del own[key]
        self._count -= 1
        if not own:
            del self._own[namespace]

    def to_forget(self, oldest: bytes, newcomer: bytes) -> bytes:
        """Return the key to forget for a newcomer.

        Parameters
        ----------
        oldest : of all keys, which must not be none.
        """
        for namespace in (oldest[:NAMESPACE_BYTES], newcomer[:NAMESPACE_BYTES], self._largest):
            own = self._own.get(namespace, {})
            if own and len(own) * len(self._own) >= self._count:
                return next(iter(own))
        self._largest = max(self._own, key=lambda namespace: len(self._own[namespace]))
        return next(iter(self._own[self._largest]))

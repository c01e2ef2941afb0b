"""Groups of keys by a name, each in the order of insertion.

The other modules of this package call it. Invariant: no group is empty.
"""

from __future__ import annotations


def drop(table: dict[str, dict[str, None]], name: str, key: str) -> None:
    """Remove a key from a group, and the group with its last key."""
    group = table.get(name)
    if group is not None:
        group.pop(key, None)
        if not group:
            del table[name]

"""Which of two versions of one kind of object is the later one.

Used by `reflector` and by the hand-over of the lease. Versions of one kind compare as positive integers of any length
without leading zeros. Source: Kubernetes' KEP-5504, stable since 1.35.
"""

from __future__ import annotations


def order(version: str) -> tuple[int, str] | None:
    """Return a key that sorts versions as the integers that they are; None for text that is no version."""
    proper = version.isascii() and version.isdecimal() and not version.startswith("0")
    return (len(version), version) if proper else None

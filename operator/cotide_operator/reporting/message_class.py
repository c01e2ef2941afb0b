"""Decides whether a new message about a waiting pod is news, or only its counts differ from the last one.

Used by `pod_annotator` and `event_recorder`. A new or deleted node changes the counts in the message of every waiting
pod, and the reader of one learns little from it. Pure.
"""

from __future__ import annotations

import re
from typing import Final

_COUNT: Final = re.compile(r"\d+")


def is_alike(message: str, other: str) -> bool:
    """Return whether two messages differ only in their numbers."""
    return message == other or _COUNT.sub("0", message) == _COUNT.sub("0", other)

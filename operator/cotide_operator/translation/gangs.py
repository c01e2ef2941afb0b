"""The gang of a pod: from annotations, as pods of a Job carry them, or the label of coscheduling beside them.

Called by `pods_and_nodes` for each pod of ours. Pure. A gang lives in its namespace, so that nobody joins another
tenant's. Invariant: a pod that names a gang whose size can't be read starts never alone: it is Misconfigured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from cotide_core.events import Gang
from cotide_core.limits import GANG_MOST, NAME_CHARACTERS, NUMBER_CHARACTERS, SECONDS_MOST

GANG_ANNOTATION: Final = "cotide.dev/gang"
MIN_MEMBER_ANNOTATION: Final = "cotide.dev/gang-min-member"
TIMEOUT_ANNOTATION: Final = "cotide.dev/gang-timeout-seconds"
POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
"""Of scheduler-plugins' coscheduling; its PodGroup is not read, so the size is asked for beside it."""
DEFAULT_TIMEOUT_SECONDS: Final = 300.0
"""Chosen: longer than it takes to pull a large image again, short beside what a gang holds meanwhile."""


def gang_of(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], succeeded: int = 0
) -> tuple[Gang | None, tuple[str, ...]]:
    """Return the gang that a pod names, and the field at fault where it can't be followed.

    Parameters
    ----------
    succeeded : members that the status of their Job counts as succeeded.
    """
    name = annotations.get(GANG_ANNOTATION) or labels.get(POD_GROUP_LABEL)
    if not name:
        return None, ()
    if len(name) > NAME_CHARACTERS:
        return None, (f"metadata.annotations[{GANG_ANNOTATION}] of more than {NAME_CHARACTERS} characters",)
    minimum = _number(annotations.get(MIN_MEMBER_ANNOTATION))
    if minimum is None:
        named = f"metadata.annotations[{GANG_ANNOTATION}]"
        if GANG_ANNOTATION not in annotations:
            named = f"metadata.labels[{POD_GROUP_LABEL}]"
        return None, (f"{named} without a number from 1 to {GANG_MOST} in annotation {MIN_MEMBER_ANNOTATION}",)
    seconds = _seconds(annotations.get(TIMEOUT_ANNOTATION))
    return Gang(f"{namespace}/{name}", minimum, seconds, succeeded), ()


def _number(text: str | None) -> int | None:
    if text is None or len(text) > NUMBER_CHARACTERS or not (text.isascii() and text.isdecimal()):
        return None
    return int(text) if 1 <= int(text) <= GANG_MOST else None


def _seconds(text: str | None) -> float:
    """Return a time-out; one that can't be read is the default, as with our other annotations."""
    try:
        seconds = float(text) if text is not None and len(text) <= NUMBER_CHARACTERS else math.nan
    except ValueError:
        return DEFAULT_TIMEOUT_SECONDS
    return min(seconds, float(SECONDS_MOST)) if seconds >= 1 else DEFAULT_TIMEOUT_SECONDS

"""The gang of a pod: from annotations, as pods of a Job carry them, or from an object that others define.

Called by `pods_and_nodes` for each pod of ours. Pure. A gang lives in its namespace, so that nobody joins another
tenant's. Invariant: a pod that names a gang whose size can't be read starts never alone: it is Misconfigured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from cotide_core.events import Gang
from cotide_core.limits import MAX_GANG, MAX_SECONDS, NAME_CHARACTERS, NUMBER_CHARACTERS
from cotide_kube.objects import PodSpec
from cotide_operator.translation.pod_groups import POD_GROUP_LABEL, SINGLE, DeclaredGang

GANG_ANNOTATION: Final = "cotide.dev/gang"
MIN_MEMBER_ANNOTATION: Final = "cotide.dev/gang-min-member"
TIMEOUT_ANNOTATION: Final = "cotide.dev/gang-timeout-seconds"
DEFAULT_TIMEOUT_SECONDS: Final = 300.0
"""Chosen: longer than it takes to pull a large image again, short beside what a gang holds meanwhile."""


def gang_of(
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    succeeded: int = 0,
    said: DeclaredGang | None = None,
    spec: PodSpec | None = None,
) -> tuple[Gang | None, tuple[str, ...]]:
    """Return the gang that a pod names, and the field at fault where it can't be followed.

    Parameters
    ----------
    succeeded : members that the status of their Job counts as succeeded.
    said : what the object says that it names by its label, ``spec.workloadRef`` or ``spec.schedulingGroup``;
        annotations come before it.
    spec : its own.
    """
    name = name_of(labels, annotations, spec)
    if name is None or (said == SINGLE and GANG_ANNOTATION not in annotations):
        return None, ()
    if len(name) > NAME_CHARACTERS:
        return None, (f"metadata.annotations[{GANG_ANNOTATION}] of more than {NAME_CHARACTERS} characters",)
    minimum = _number(annotations.get(MIN_MEMBER_ANNOTATION)) or (said.minimum if said else None)
    if not minimum:
        lacks = f"without a number from 1 to {MAX_GANG} in annotation {MIN_MEMBER_ANNOTATION}"
        if GANG_ANNOTATION in annotations:
            return None, (f"metadata.annotations[{GANG_ANNOTATION}] {lacks}",)
        return None, (_lacking(spec, name, lacks),)
    seconds = _seconds(annotations.get(TIMEOUT_ANNOTATION))
    if said is not None and said.timeout_seconds is not None and TIMEOUT_ANNOTATION not in annotations:
        seconds = said.timeout_seconds
    return Gang(f"{namespace}/{name}", minimum, seconds, succeeded), ()


def name_of(labels: Mapping[str, str], annotations: Mapping[str, str], spec: PodSpec | None = None) -> str | None:
    """Return the name of the gang that a pod names, followed or not; None for none."""
    return annotations.get(GANG_ANNOTATION) or _named(labels, spec)


def _named(labels: Mapping[str, str], spec: PodSpec | None) -> str | None:
    """Return the gang that a pod names otherwise than by annotation, None for none.

    Of a Workload that is a group and which of its replicas: each is a gang of its own.
    """
    if spec is not None and spec.scheduling_group is not None:
        return spec.scheduling_group.pod_group_name
    if spec is not None and spec.workload_ref is not None:
        reference = spec.workload_ref
        return "/".join(filter(None, (reference.name, reference.pod_group, reference.pod_group_replica_key)))
    return labels.get(POD_GROUP_LABEL) or None


def _lacking(spec: PodSpec | None, name: str, lacks: str) -> str:
    """Return by which field a pod names its gang, and where a size was looked for."""
    if spec is not None and spec.scheduling_group is not None:
        return f"spec.schedulingGroup {name} {lacks} or in a gang policy of a PodGroup {name}"
    if spec is not None and spec.workload_ref is not None:
        return f"spec.workloadRef {name} {lacks} or in a gang policy of that Workload"
    return f"metadata.labels[{POD_GROUP_LABEL}] {lacks} or in a PodGroup {name}"


def _number(text: str | None) -> int | None:
    if text is None or len(text) > NUMBER_CHARACTERS or not (text.isascii() and text.isdecimal()):
        return None
    return int(text) if 1 <= int(text) <= MAX_GANG else None


def _seconds(text: str | None) -> float:
    """Return a time-out; one that can't be read is the default, as with our other annotations."""
    try:
        seconds = float(text) if text is not None and len(text) <= NUMBER_CHARACTERS else math.nan
    except ValueError:
        return DEFAULT_TIMEOUT_SECONDS
    return min(seconds, float(MAX_SECONDS)) if seconds >= 1 else DEFAULT_TIMEOUT_SECONDS

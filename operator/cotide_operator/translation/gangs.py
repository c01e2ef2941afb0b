"""The gang of a pod: from annotations, as pods of a Job carry them, or from an object of another API.

`pods_and_nodes` calls it for each pod of ours. Pure. A gang lives in its namespace, so that no pod joins another
tenant's. Invariant: a pod that names a gang of unreadable size never starts alone: it is Misconfigured.
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
"""Chosen: longer than a second pull of a large image, short compared with the time that a gang may hold resources."""


def gang_of(
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    succeeded: int = 0,
    declared: DeclaredGang | None = None,
    spec: PodSpec | None = None,
) -> tuple[Gang | None, tuple[str, ...]]:
    """Return the gang that a pod names, and the invalid field if it can't be followed.

    Parameters
    ----------
    succeeded : members that the status of their Job counts as succeeded.
    declared : gang of the object that the pod names by its label, ``spec.workloadRef`` or ``spec.schedulingGroup``;
        annotations take precedence.
    spec : of the pod.
    """
    name = name_of(labels, annotations, spec)
    if name is None or (declared == SINGLE and GANG_ANNOTATION not in annotations):
        return None, ()
    if len(name) > NAME_CHARACTERS:
        return None, (f"metadata.annotations[{GANG_ANNOTATION}] of more than {NAME_CHARACTERS} characters",)
    minimum = _number(annotations.get(MIN_MEMBER_ANNOTATION)) or (declared.minimum if declared else None)
    if not minimum:
        lacks = f"without a number from 1 to {MAX_GANG} in annotation {MIN_MEMBER_ANNOTATION}"
        if GANG_ANNOTATION in annotations:
            return None, (f"metadata.annotations[{GANG_ANNOTATION}] {lacks}",)
        return None, (_lacking(spec, name, lacks),)
    seconds = _seconds(annotations.get(TIMEOUT_ANNOTATION))
    if declared is not None and declared.timeout_seconds is not None and TIMEOUT_ANNOTATION not in annotations:
        seconds = declared.timeout_seconds
    return Gang(f"{namespace}/{name}", minimum, seconds, succeeded), ()


def name_of(labels: Mapping[str, str], annotations: Mapping[str, str], spec: PodSpec | None = None) -> str | None:
    """Return the name of the gang that a pod names, followed or not; None for none."""
    return annotations.get(GANG_ANNOTATION) or _named(labels, spec)


def _named(labels: Mapping[str, str], spec: PodSpec | None) -> str | None:
    """Return the gang that a pod names without an annotation, None for none.

    For a Workload the name contains a group and one of its replicas: each is a gang of its own.
    """
    if spec is not None and spec.scheduling_group is not None:
        return spec.scheduling_group.pod_group_name
    if spec is not None and spec.workload_ref is not None:
        reference = spec.workload_ref
        return "/".join(filter(None, (reference.name, reference.pod_group, reference.pod_group_replica_key)))
    return labels.get(POD_GROUP_LABEL) or None


def _lacking(spec: PodSpec | None, name: str, lacks: str) -> str:
    """Return the field that names a pod's gang, and the places without its size."""
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
    """Return a time-out; an unreadable one counts as the default, as in our other annotations."""
    try:
        seconds = float(text) if text is not None and len(text) <= NUMBER_CHARACTERS else math.nan
    except ValueError:
        return DEFAULT_TIMEOUT_SECONDS
    return min(seconds, float(MAX_SECONDS)) if seconds >= 1 else DEFAULT_TIMEOUT_SECONDS

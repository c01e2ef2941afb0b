"""Gang sizes of other APIs: a PodGroup of coscheduling, or a Workload (1.35) or PodGroup of ``scheduling.k8s.io``.

`pods_and_nodes` calls it for the rule of one pod. `event_source` passes pods to it and gets the pods that a change of
such an object concerns. Invariant: a change of an object examines only the pods that name it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from cotide_core.limits import MAX_GANG, MAX_SECONDS
from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import CustomObject, Kind, ObjectCache

POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
"""Of scheduler-plugins' coscheduling."""


class DeclaredGang(NamedTuple):
    """The gang that an object declares for a pod that names it.

    Attributes
    ----------
    minimum : pods that it requires; 0 if it is missing or unreadable, None if it requires no gang.
    timeout_seconds : None if it has none.
    """

    minimum: int | None
    timeout_seconds: float | None = None


UNKNOWN: Final = DeclaredGang(0)
SINGLE: Final = DeclaredGang(None)


def named_by(pod: PodObject) -> tuple[Kind, str] | None:
    """Return kind and key of the object that declares the size of a pod's gang, None for a pod that names none."""
    spec, namespace = pod.spec, pod.metadata.namespace
    if spec.scheduling_group is not None:
        return "gangpodgroups", f"{namespace}/{spec.scheduling_group.pod_group_name}"
    if spec.workload_ref is not None:
        return "gangworkloads", f"{namespace}/{spec.workload_ref.name}"
    group = pod.metadata.labels.get(POD_GROUP_LABEL)
    return ("podgroups", f"{namespace}/{group}") if group else None


def declared(pod: PodObject, cache: ObjectCache) -> DeclaredGang | None:
    """Return the declared gang of a pod; None for a pod that names no such object."""
    named = named_by(pod)
    if named is None:
        return None
    found: CustomObject | None = cache.objects(named[0]).get(named[1])
    if found is None:
        return UNKNOWN
    kind, spec = named[0], pod.spec
    group = spec.workload_ref.pod_group if kind == "gangworkloads" and spec.workload_ref is not None else ""
    return next((gang for name, gang in said_by(kind, found) if name == group), UNKNOWN)


def _by_policy(policy: Any) -> DeclaredGang:
    if not isinstance(policy, dict) or "gang" not in policy:
        return SINGLE if isinstance(policy, dict) and "basic" in policy else UNKNOWN
    gang = policy["gang"]
    return DeclaredGang(_size(gang.get("minCount") if isinstance(gang, dict) else None))


def _size(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_GANG else 0


def _seconds(value: Any) -> float | None:
    right = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return min(float(value), float(MAX_SECONDS)) if right else None


def said_by(kind: Kind, found: CustomObject | None) -> tuple[tuple[str, DeclaredGang], ...]:
    """Return all gangs that an object declares, by the name of the group: an update with the same result has no
    effect."""
    if found is None:
        return ()
    if kind == "podgroups":
        spec = found.spec
        return (("", DeclaredGang(_size(spec.get("minMember")), _seconds(spec.get("scheduleTimeoutSeconds")))),)
    if kind == "gangpodgroups":
        return (("", _by_policy(found.spec.get("schedulingPolicy"))),)
    groups = found.spec.get("podGroups")
    named = [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    return tuple((str(item.get("name")), _by_policy(item.get("policy"))) for item in named)


class PodGroupIndex:
    """Pods by the object that declares the size of their gang."""

    def __init__(self) -> None:
        self._pods: dict[tuple[Kind, str], dict[str, None]] = {}
        self._named: dict[str, tuple[Kind, str]] = {}

    def note(self, key: str, pod: PodObject | None) -> None:
        """Index a pod in its present state, None for a deleted one."""
        named = named_by(pod) if pod is not None else None
        before = self._named.get(key)
        if named == before:
            return
        if before is not None:
            del self._named[key]
            del self._pods[before][key]
            if not self._pods[before]:
                del self._pods[before]
        if named is not None:
            self._named[key] = named
            self._pods.setdefault(named, {})[key] = None

    def concerned(self, kind: Kind, key: str) -> Iterable[str]:
        """Return the pods that name an object."""
        return tuple(self._pods.get((kind, key), ()))

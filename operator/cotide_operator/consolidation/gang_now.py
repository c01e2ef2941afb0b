"""`gang_now`: the state of a pod's gang at this moment.

The hands of a `carrier.Carrier` call it before each eviction. A plan counts the spare pods of a gang when it is made;
minutes later a member may have failed, or its node may be gone. The rules are those of the engine and of plans
(`translation.gangs`, `cotide_core.consolidation.removal.gangs`). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_core.events import Gang
from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.translation.gangs import GANG_ANNOTATION, gang_of, name_of
from cotide_operator.translation.pod_groups import named_by
from cotide_operator.translation.pods_and_nodes import ownership_of


@dataclass(frozen=True, slots=True)
class GangNow:
    """A gang at one moment.

    Attributes
    ----------
    key : ``namespace/name``.
    minimum : pods that must hold a node, or have succeeded.
    holding : pods that hold a node and are not being deleted.
    succeeded : by its Job's count or the observed pods, the larger one.
    """

    key: str
    minimum: int
    holding: int
    succeeded: int = 0

    @property
    def spare(self) -> int:
        """Return how many of its pods may go now; negative when some are missing."""
        return self.holding + self.succeeded - self.minimum


def names_a_gang(pod: PodObject) -> bool:
    """Whether a pod names a gang, readable or not."""
    return GANG_ANNOTATION in pod.metadata.annotations or named_by(pod) is not None


def gang_now(cache: ObjectCache, key: str) -> GangNow | None:
    """Return the state of a pod's gang; None for a missing pod, or one without a gang."""
    pod = cache.pods.get(key)
    rule = _rule(pod, cache) if pod is not None else None
    if pod is None or rule is None:
        return None
    name = _name(pod)
    holding = seen = counted = 0
    for other in cache.pods.values():
        # The name comes first: a namespace may have tens of thousands of pods in gangs.
        if other.metadata.namespace != pod.metadata.namespace or _name(other) != name:
            continue
        of_other = _rule(other, cache)
        if of_other is None or of_other.key != rule.key:
            continue
        counted = max(counted, of_other.succeeded)
        seen += other.status.phase == "Succeeded"
        ended = other.status.phase in ("Succeeded", "Failed")
        holding += bool(other.spec.node_name) and not ended and other.metadata.deletion_timestamp is None
    return GangNow(rule.key, rule.minimum, holding, max(seen, counted))


def _name(pod: PodObject) -> str | None:
    return name_of(pod.metadata.labels, pod.metadata.annotations, pod.spec)


def _rule(pod: PodObject, cache: ObjectCache) -> Gang | None:
    if not names_a_gang(pod):
        return None
    owned = ownership_of(pod, cache)
    metadata = pod.metadata
    rule, _ = gang_of(
        metadata.namespace,
        metadata.labels,
        metadata.annotations,
        owned.job_succeeded,
        owned.gang,
        pod.spec,
    )
    return rule

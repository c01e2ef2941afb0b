"""What a pod gets by default and what is refused about it.

Called through `kind_rules`. Stands for the defaulting, the priority admission and the validation of a real server, as
far as a scheduler and its users can tell.
"""

from __future__ import annotations

from cotide_sim.apiserver.cluster import Cluster, WriteOptions
from cotide_sim.apiserver.refusals import Cause
from cotide_sim.apiserver.resources import Json, Resource


def default(
    cluster: Cluster, resource: Resource, version: str, obj: Json, old: Json | None, options: WriteOptions
) -> None:
    """Fill in what a real server would."""
    if old is None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("schedulerName", "default-scheduler")
        spec.setdefault("restartPolicy", "Always")
        obj["status"] = {"phase": "Pending"}


def check(cluster: Cluster, resource: Resource, version: str, obj: Json, old: Json | None) -> list[Cause]:
    """Return what is wrong with a pod."""
    return []

"""Server-side apply."""

from __future__ import annotations

from cotide_sim.apiserver import writing
from cotide_sim.apiserver.cluster import Cluster, WriteOptions
from cotide_sim.apiserver.merge_patch import merge_patch
from cotide_sim.apiserver.resources import Json, Resource


def apply(
    cluster: Cluster, resource: Resource, version: str, namespace: str, name: str, body: Json, subresource: str,
    options: WriteOptions,
) -> tuple[bytes, int]:  # fmt: skip
    """Create or merge."""
    if cluster.store.collection(resource).get(namespace, name) is None:
        return writing.create(cluster, resource, version, namespace, body, options), 201
    return writing.patch(
        cluster, resource, version, namespace, name, lambda obj: merge_patch(obj, body), subresource, options
    ), 200

"""The contents of a new cluster: namespaces, priority classes and the API services that clients list.

Called by the server when it starts; invariant: existing objects (from a file) stay unchanged.
"""

from __future__ import annotations

from cotide_sim.apiserver.cluster import Cluster, WriteOptions
from cotide_sim.apiserver.registry.resources import Json
from cotide_sim.apiserver.verbs import writing


def seed(cluster: Cluster) -> None:
    """Create the first objects."""
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        _once(cluster, "namespaces", "", {"metadata": {"name": name}})
    # Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
    for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)):
        priority = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"}
        _once(cluster, "priorityclasses.scheduling.k8s.io", "", priority)
    service = {
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]},
    }
    _once(cluster, "services", "default", service)


def _once(cluster: Cluster, key: str, namespace: str, obj: Json) -> None:
    collection = cluster.collection(key)
    resource = collection.resource
    if collection.get(namespace, obj["metadata"]["name"]) is None:
        named: Json = {"apiVersion": resource.storage_version, "kind": resource.kind, **obj}
        writing.create(cluster, resource, resource.versions[0].name, namespace, named, WriteOptions())

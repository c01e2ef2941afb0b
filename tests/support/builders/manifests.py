"""Builders of objects as an API server has them: mappings, and the same as our client reads them.

A test names what it is about. Nothing is set that was not asked for, but a container, and what an object's kind needs.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cotide_kube.objects import NodeObject, PodObject

Manifest = dict[str, Any]
COTIDE = "cotide.dev/v1alpha1"


def container(
    cpu: str | None = None, memory: str | None = None, *, name: str = "c", image: str = "none", **more: Any
) -> Manifest:
    """A container that asks for so much."""
    requests = {key: amount for key, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    return {"name": name, "image": image, **({"resources": {"requests": requests}} if requests else {}), **more}


def pod_manifest(
    name: str = "p",
    cpu: str | None = None,
    memory: str | None = None,
    *,
    cls: str | None = None,
    labels: dict[str, str] | None = None,
    spec: Manifest | None = None,
    status: Manifest | None = None,
    **metadata: Any,
) -> Manifest:
    """A pod of one container; ``spec`` and ``metadata`` come over what is set here, ``cls`` is our class's label."""
    marks = {**({"cotide.dev/class": cls} if cls is not None else {}), **(labels or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **({"labels": marks} if marks else {}), **metadata},
        "spec": {"containers": [container(cpu, memory)], **(spec or {})},
        **({"status": status} if status is not None else {}),
    }


def our_pod_manifest(name: str = "p", cpu: str | None = None, memory: str | None = None, **parts: Any) -> Manifest:
    """The same for a pod that Cotide binds."""
    spec = {"schedulerName": "cotide", **(parts.pop("spec", None) or {})}
    return pod_manifest(name, cpu, memory, spec=spec, **parts)


def pod_object(name: str = "p", cpu: str | None = None, memory: str | None = None, **parts: Any) -> PodObject:
    """A pod of ours as our client reads it: in namespace ``ns``, uid ``u-NAME``, unless told otherwise."""
    named = {"namespace": "ns", "uid": f"u-{name}", **parts}
    return msgspec.convert(our_pod_manifest(name, cpu, memory, **named), PodObject)


def node_manifest(name: str = "n", cpu: str | None = None, *, memory: str = "16Gi", pods: str = "110") -> Manifest:
    """A node; one that offers something is ready."""
    body: Manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    if cpu is None:
        return body
    offered = {"cpu": cpu, "memory": memory, "pods": pods}
    ready = {"type": "Ready", "status": "True"}
    return {**body, "status": {"allocatable": offered, "capacity": dict(offered), "conditions": [ready]}}


def node_object(name: str = "n", cpu: str | None = None, *, memory: str = "16Gi", pods: str = "110") -> NodeObject:
    """A node as our client reads it."""
    return msgspec.convert(node_manifest(name, cpu, memory=memory, pods=pods), NodeObject)


def template(
    cpu: str | None = None, memory: str | None = None, *, annotations: dict[str, str] | None = None, **spec: Any
) -> Manifest:
    """A pod template of one container; ``spec`` comes over it."""
    body: Manifest = {"spec": {"containers": [container(cpu, memory)], **spec}}
    return {"metadata": {"annotations": annotations}, **body} if annotations else body


def job_manifest(name: str = "count", cpu: str | None = None, *, namespace: str | None = None, **spec: Any) -> Manifest:
    """A Job of ours whose pods ask for so much, unless ``spec`` brings a template."""
    return _ours("Job", name, namespace, {"template": template(cpu), **spec})


def workload_manifest(name: str = "web", *, namespace: str | None = None, **spec: Any) -> Manifest:
    """A Workload of ours."""
    return _ours("Workload", name, namespace, spec)


def service_manifest(*, rates: str = "1200", namespace: str = "default", **qos: Any) -> Manifest:
    """A Workload ``web`` of two pods that fake nodes load at these rates, with a limit of 50 ms."""
    body = template("250m", "64Mi", annotations={"sim.cotide.dev/rates": rates})
    limits = {"latencyP95Milliseconds": 50, **qos}
    return workload_manifest(namespace=namespace, replicas=2, qos=limits, template=body)


def _ours(kind: str, name: str, namespace: str | None, spec: Manifest) -> Manifest:
    metadata = {"name": name, **({"namespace": namespace} if namespace is not None else {})}
    return {"apiVersion": COTIDE, "kind": kind, "metadata": metadata, "spec": spec}


def owner(job: str, uid: str = "o") -> Manifest:
    """The reference by which a pod names the Job that owns it."""
    return {"apiVersion": COTIDE, "kind": "Job", "name": job, "uid": uid, "controller": True}


def machine_deployments() -> Manifest:
    """Return a definition of Cluster API's kind that makes nodes, as far as its scale subresource goes."""
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return _of_cluster_api("MachineDeployment", status={}, scale=paths)


def machines() -> Manifest:
    """Return a definition of Cluster API's Machines, with any fields."""
    return _of_cluster_api("Machine", status={})


def _of_cluster_api(kind: str, **subresources: Any) -> Manifest:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
    }
    names = {"plural": f"{kind.lower()}s", "singular": kind.lower(), "kind": kind}
    spec = {"group": "cluster.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**head, "metadata": {"name": f"{names['plural']}.cluster.x-k8s.io"}, "spec": spec}

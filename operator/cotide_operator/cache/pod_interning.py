"""The cached form of pods and nodes: only fields that are read, and equal parts once.

Their reflectors call it for each decoded object (see `cache.KEPT_AS`). Most pods come from few templates, with equal
containers, tolerations, labels and conditions. In a cluster of 50,000 pods these would take more than half of the
memory. The cached form omits the address of a pod and the names of unreferenced volumes. Invariant: the operator reads
no omitted field; all else is equal to the original. Nodes have most of their images in common, with five names each.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from cotide_core.limits import MAX_NODE_IMAGES
from cotide_core.state.remembered import Remembered
from cotide_kube.objects import (
    SAFE_LOCAL_VOLUMES_ANNOTATION,
    Container,
    ContainerStatus,
    Metadata,
    NodeImageObject,
    NodeObject,
    PodObject,
    PodSpec,
    ReplicaSetObject,
    ServiceObject,
    Volume,
)

T = TypeVar("T")
S = TypeVar("S", ServiceObject, ReplicaSetObject)
MOST: Final = 2048
"""Parts of a generation; chosen: 3 MB. Hundreds of templates recur before so many new parts have come."""
IMAGES: Final = 8192
"""Images of nodes of a generation; chosen: 5 MB, and 5,000 nodes of 50 images have most in common."""
MOST_BYTES: Final = 32 * 1024 * 1024
LARGEST_BYTES: Final = 64 * 1024
"""Bytes of the keys of a generation, and of the largest cached key; chosen: a pod may be as large as 1.5 MB."""
_NOTHING: Final[dict[str, str]] = {}
"""Shared, read-only replacement of every empty mapping of pods: each would take 64 bytes, two or three a pod."""
_encode: Final = msgspec.msgpack.Encoder().encode


def keep_selector(item: S) -> S:
    """Return the cached form of a Service or a controller: its name and its selector."""
    metadata = item.metadata
    bare = Metadata(
        name=metadata.name,
        namespace=intern(metadata.namespace),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )
    return replace(item, metadata=bare)


class PodKeeping:
    """Returns the cached form of pods."""

    def __init__(self) -> None:
        self._parts: Remembered[bytes, Any] = Remembered(MOST, MOST_BYTES)

    def __call__(self, pod: PodObject) -> PodObject:
        """Return a pod that shares its equal parts with others."""
        metadata, status = pod.metadata, pod.status
        return PodObject(
            replace(
                metadata,
                namespace=intern(metadata.namespace),
                labels=self._shared(metadata.labels) or _NOTHING,
                annotations=metadata.annotations or _NOTHING,
                owner_references=self._shared(metadata.owner_references),
                finalizers=self._shared(metadata.finalizers),
                creation_timestamp=intern(metadata.creation_timestamp) if metadata.creation_timestamp else None,
            ),
            self._spec(pod.spec, SAFE_LOCAL_VOLUMES_ANNOTATION in metadata.annotations),
            replace(
                status,
                phase=intern(status.phase),
                conditions=self._shared(status.conditions),
                pod_ip="",
                allocated_resources=status.allocated_resources or _NOTHING,
                container_statuses=_without_echo(pod.spec.containers, status.container_statuses),
                init_container_statuses=_without_echo(pod.spec.init_containers, status.init_container_statuses),
            ),
        )

    def _spec(self, spec: PodSpec, names_local: bool) -> PodSpec:
        named = any(volume.name and volume.ephemeral is None for volume in spec.volumes)
        volumes = (
            tuple(volume if names_local else _unnamed(volume) for volume in spec.volumes) if named else spec.volumes
        )
        common = self._shared(replace(spec, node_name="", volumes=volumes))
        return replace(common, node_name=intern(spec.node_name)) if spec.node_name else common

    def _shared(self, part: T) -> T:
        if not part:
            return part
        key = _encode(part)
        if len(key) > LARGEST_BYTES:
            return part
        known: T | None = self._parts.get(key)
        if known is not None:
            return known
        self._parts.make_room()
        self._parts.keep(key, part, len(key))
        return part


class NodeKeeping:
    """Returns the cached form of nodes."""

    def __init__(self) -> None:
        self._images: Remembered[NodeImageObject, NodeImageObject] = Remembered(IMAGES)

    def __call__(self, node: NodeObject) -> NodeObject:
        """Return a node that shares its images with others; beyond the limit the first, which are the largest."""
        images = node.status.images
        if not images:
            return node
        shared = tuple(self._shared(image) for image in images[:MAX_NODE_IMAGES])
        return NodeObject(node.metadata, node.spec, replace(node.status, images=shared))

    def _shared(self, image: NodeImageObject) -> NodeImageObject:
        known = self._images.get(image)
        if known is not None:
            return known
        self._images.make_room()
        self._images.keep(image, image)
        return image


def _unnamed(volume: Volume) -> Volume:
    """Omit a redundant name: an ephemeral volume's name is part of the name of its claim."""
    return volume if volume.ephemeral is not None or not volume.name else replace(volume, name="")


def _without_echo(
    containers: tuple[Container, ...], statuses: tuple[ContainerStatus, ...]
) -> tuple[ContainerStatus, ...]:
    """Omit the kubelet's copies of spec fields: they only differ while a pod is resized."""
    if not any(status.resources is not None or status.allocated_resources for status in statuses):
        return statuses
    asked = {container.name: container.resources.requests for container in containers}
    return tuple(
        replace(status, resources=None, allocated_resources={})
        if (status.resources is None or status.resources.requests == asked.get(status.name))
        and (not status.allocated_resources or status.allocated_resources == asked.get(status.name))
        else status
        for status in statuses
    )

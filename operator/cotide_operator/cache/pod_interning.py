"""What is kept of a pod: what is read, and equal parts once.

Called by the pods' reflector for each pod that it decodes (see `mirror.KEPT_AS`). Most pods come from few templates:
their containers, tolerations, labels and conditions are equal, and in a cluster of 50,000 pods they would take more
than half of the memory. Invariant: what is left out, its address, is read nowhere in the operator; all else is equal
to what came.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from cotide_kube.objects import PodObject, PodSpec

T = TypeVar("T")
MOST: Final = 20_000
"""Parts that are remembered before sharing begins anew; chosen: a few MB."""
_encode: Final = msgspec.msgpack.Encoder().encode


class PodKeeping:
    """Returns pods as they are kept."""

    def __init__(self) -> None:
        self._parts: dict[bytes, Any] = {}

    def __call__(self, pod: PodObject) -> PodObject:
        """Return a pod that shares what it has in common with others."""
        metadata, status = pod.metadata, pod.status
        return PodObject(
            replace(
                metadata,
                namespace=intern(metadata.namespace),
                labels=self._shared(metadata.labels),
                owner_references=self._shared(metadata.owner_references),
                finalizers=self._shared(metadata.finalizers),
                creation_timestamp=intern(metadata.creation_timestamp) if metadata.creation_timestamp else None,
            ),
            self._spec(pod.spec),
            replace(status, phase=intern(status.phase), conditions=self._shared(status.conditions), pod_ip=""),
        )

    def _spec(self, spec: PodSpec) -> PodSpec:
        common = self._shared(replace(spec, node_name=""))
        return replace(common, node_name=intern(spec.node_name)) if spec.node_name else common

    def _shared(self, part: T) -> T:
        if not part:
            return part
        key = _encode(part)
        known: T | None = self._parts.get(key)
        if known is not None:
            return known
        if len(self._parts) >= MOST:
            self._parts.clear()
        self._parts[key] = part
        return part

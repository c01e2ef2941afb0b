"""Writes statuses of Jobs and Workloads: only what changed, and not more often than readers need.

The two controllers call it with the wanted status; it holds the last status that the API server accepted. Only one
operator acts (leader lease), so that our last write counts more than a cache that lags behind. A cache that is ahead
counts more than our last write: an earlier patch without an answer, ours or a former leader's, may be carried out after
a later one. Its values must then be overwritten once more.

Invariant: an important difference (phase, counters, a condition's reason) is written at once. One that only refreshes
numbers waits until the object's last write is `refresh_seconds` old.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.apis.types import API_VERSION
from cotide_operator.cache.object_cache import CustomObject
from cotide_operator.controllers.status_builder import Status, difference

REFRESH_SECONDS: Final = 3.0
"""Wall seconds between two refreshes of one object's numbers; chosen for a reader of `kubectl get -w`."""


@dataclass(slots=True)
class LastWritten:
    """The status of one object as the API server has it."""

    uid: str
    status: Mapping[str, Any]
    written_monotonic: float = field(default=float("-inf"))
    version: int | None = None
    """The object's version after our last write; None before it, or when it is no number."""


class StatusWriter:
    """Writes the status subresource of one kind.

    Parameters
    ----------
    client : KubeClient
        To the API server.
    plural : str
        ``jobs`` or ``workloads``.
    refresh_seconds : float
        See the module.
    """

    def __init__(self, client: KubeClient, plural: str, refresh_seconds: float = REFRESH_SECONDS) -> None:
        self._client = client
        self._plural = plural
        self._refresh_seconds = refresh_seconds
        self.writes = 0

    async def write(
        self, item: CustomObject, kept: LastWritten, status: Status, *, at_once: bool = False
    ) -> float | None:
        """Write the differences.

        Returns
        -------
        float or None
            Seconds after which the rest should be written; None when nothing is left.

        Raises
        ------
        ClusterError
            When the write fails, but not for a missing object. A conflict is such a failure: another object has the
            name now, or another write came at the same moment. The next reconciliation finds out.
        """
        _heed(item, kept)
        change = difference(kept.status, status)
        if change is None:
            return None
        age = time.monotonic() - kept.written_monotonic
        if not (change.urgent or at_once) and age < self._refresh_seconds:
            return self._refresh_seconds - age
        metadata = item.metadata
        path = f"/apis/{API_VERSION}/namespaces/{metadata.namespace}/{self._plural}/{metadata.name}/status"
        try:
            taken = await self._client.patch(path, {"metadata": {"uid": kept.uid}, "status": change.patch})
            kept.version = version_of((taken.get("metadata") or {}).get("resourceVersion"))
        except ApiError as error:
            if error.status != 404:
                raise
        self.writes += 1
        kept.status = {key: value for key, value in status.items() if value is not None}
        kept.written_monotonic = time.monotonic()
        return None


def _heed(item: CustomObject, kept: LastWritten) -> None:
    """Take over the API server's status when it is newer than our last write and differs in an important field."""
    version = version_of(item.metadata.resource_version)
    if kept.version is None or version is None or version <= kept.version or item.metadata.uid != kept.uid:
        return
    change = difference(item.status, kept.status)
    if change is not None and change.urgent:
        kept.status = dict(item.status)


def version_of(text: str | None) -> int | None:
    """Return a resource version as a number, None for another text. Versions of one kind can be compared: Kubernetes
    1.35 promises it, and etcd has always made it so."""
    return int(text) if isinstance(text, str) and len(text) < 20 and text.isdecimal() else None

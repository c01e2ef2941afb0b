"""The status of a Job as the last leader left it, for a leader with a watch that may lag behind.

`job_controller` calls it once for each Job and term, before it counts or makes a pod. A standby keeps a warm cache.
When it takes over, its watch of Jobs may not show the other leader's last write yet. Its watch of pods may already show
that a counted pod is gone: without this check its index would run again. Invariant: the returned status is at least as
new as a moment of this term, when this leader is the only writer.
"""

from __future__ import annotations

import asyncio

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.apis.names import GROUP, VERSION
from cotide_operator.cache.object_cache import PATHS, CustomObject
from cotide_operator.controllers.job_reconciler import Outcome
from cotide_operator.controllers.status_writer import LastWritten, version_of


class JobStatusReader:
    """Reads statuses that may be newer than the cache; one instance serves one term of leadership."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._since: int | None = None
        """Version of all Jobs at a moment of this term: a newer Job was changed in this term, by this leader."""
        self._turn = asyncio.Lock()

    async def read(self, job: CustomObject, kept: LastWritten) -> LastWritten | None:
        """Return the present status of a Job; None when it is gone or another has its name.

        Parameters
        ----------
        job : CustomObject
            The Job in the cache. The API server is asked only where this may be outdated and it matters. A Job that was
            changed in this term, or that has ended, needs no request.
        kept : LastWritten
            The known status, with our own writes.
        """
        metadata = job.metadata
        seen = version_of(metadata.resource_version)
        since = await self._begin()
        if job.status.get("phase") in set(Outcome) or (seen is not None and since is not None and seen > since):
            ours = kept.version is not None and seen is not None and kept.version >= seen
            return kept if ours else LastWritten(metadata.uid, dict(job.status), version=seen)
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{metadata.namespace}/jobs/{metadata.name}"
        try:
            body = await self._client.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        found = body.get("metadata") or {}
        if not found.get("uid"):
            raise ClusterError(f"the API server's answer to GET {path} names no uid")
        if found["uid"] != metadata.uid:
            return None
        version = version_of(found.get("resourceVersion"))
        return LastWritten(metadata.uid, body.get("status") or {}, version=version)

    async def _begin(self) -> int | None:
        async with self._turn:
            if self._since is None:
                page = await self._client.get(f"{PATHS['jobs']}?limit=1")
                self._since = version_of((page.get("metadata") or {}).get("resourceVersion"))
            return self._since

"""The status of a Job as the leader before us left it, for a leader whose watch may lag behind.

Called by `job_controller` once a Job and term, before it counts or makes anything. A standby keeps a cache warm; when
it takes over, its watch of Jobs may not have told yet what the other wrote last, while that of pods tells already that
a counted pod is gone: its index would run again. Invariant: what is returned is at least as new as a moment of this
term, in which nobody else writes.
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
    """Reads what may be newer than the cache; one instance serves one term of leadership."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._since: int | None = None
        """Version of all Jobs at a moment of this term: whoever is newer was seen in this term, which is ours alone."""
        self._turn = asyncio.Lock()

    async def read(self, job: CustomObject, kept: LastWritten) -> LastWritten | None:
        """Return the status of a Job as it is now; None when it is gone or another has its name.

        Parameters
        ----------
        job : CustomObject
            As the cache has it; the API server is only asked where that may be out of date and it matters: not for a
            Job that was changed in this term, nor for one that has ended for good.
        kept : Kept
            As it was known so far, with what we wrote ourselves.
        """
        metadata = job.metadata
        seen = version_of(metadata.resource_version)
        since = await self._begin()
        if job.status.get("phase") in set(Outcome) or (seen is not None and since is not None and seen > since):
            ours = kept.version is not None and seen is not None and kept.version >= seen
            return kept if ours else LastWritten(metadata.uid, dict(job.status), version=seen)
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{metadata.namespace}/jobs/{metadata.name}"
        try:
            there = await self._client.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        found = there.get("metadata") or {}
        if not found.get("uid"):
            raise ClusterError(f"the API server's answer to GET {path} names no uid")
        if found["uid"] != metadata.uid:
            return None
        version = version_of(found.get("resourceVersion"))
        return LastWritten(metadata.uid, there.get("status") or {}, version=version)

    async def _begin(self) -> int | None:
        async with self._turn:
            if self._since is None:
                page = await self._client.get(f"{PATHS['jobs']}?limit=1")
                self._since = version_of((page.get("metadata") or {}).get("resourceVersion"))
            return self._since

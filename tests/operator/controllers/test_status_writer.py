"""What the status writer takes for written, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from cotide_kube.answers import ApiError
from cotide_operator.cache.object_cache import CustomObject, Metadata
from cotide_operator.controllers.status_writer import LastWritten, StatusWriter

JOB = CustomObject(metadata=Metadata(name="j", namespace="ns", uid="u"))


class Api:
    """Refuses with `refusals` in turn, then takes what comes."""

    def __init__(self, *refusals: int) -> None:
        self._refusals = list(refusals)
        self.taken: list[Any] = []

    async def patch(self, path: str, patch: Any) -> dict[str, Any]:
        if self._refusals:
            raise ApiError(self._refusals.pop(0), "Reason", "message")
        self.taken.append(patch["status"])
        return {"metadata": {"resourceVersion": str(10 * len(self.taken))}}


def seen(version: str, **status: Any) -> CustomObject:
    return CustomObject(metadata=Metadata(name="j", namespace="ns", uid="u", resource_version=version), status=status)


async def test_a_conflict_is_not_taken_for_written() -> None:
    api: Any = Api(409)
    writer, kept = StatusWriter(api, "jobs"), LastWritten("u", {})
    with pytest.raises(ApiError):
        await writer.write(JOB, kept, {"phase": "Running", "completedIndexes": "0"})
    assert kept.status == {}
    # The next look writes it, all of it: an index that completed must not be forgotten.
    assert await writer.write(JOB, kept, {"phase": "Running", "completedIndexes": "0"}) is None
    assert api.taken == [{"phase": "Running", "completedIndexes": "0"}]


async def test_nobody_is_told_again_about_an_object_that_is_gone() -> None:
    api: Any = Api(404)
    writer, kept = StatusWriter(api, "jobs"), LastWritten("u", {})
    assert await writer.write(JOB, kept, {"phase": "Running"}) is None
    assert await writer.write(JOB, kept, {"phase": "Running"}) is None
    assert api.taken == []


async def test_an_earlier_patch_that_came_late_is_written_over() -> None:
    api: Any = Api()
    writer, kept = StatusWriter(api, "jobs"), LastWritten("u", {})
    done = {"phase": "Succeeded", "succeeded": 2}
    await writer.write(seen("5"), kept, done)  # taken as version 10
    await writer.write(seen("9", phase="Queued", succeeded=0), kept, done)  # a cache that lags behind
    assert api.taken == [done]
    await writer.write(seen("11", phase="Queued", succeeded=0), kept, done)  # somebody wrote after us
    assert api.taken == [done, done]
    await writer.write(seen("20", **done), kept, done)
    await writer.write(seen("21", **done, conditions=[]), kept, done)  # nothing that matters
    assert api.taken == [done, done]

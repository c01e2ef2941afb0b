"""What the status writer takes for written, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from cotide_kube.answers import ApiError
from cotide_operator.mirror import CustomObject, Metadata
from cotide_operator.status_writer import Kept, StatusWriter

JOB = CustomObject(metadata=Metadata(name="j", namespace="ns", uid="u"))


class Api:
    """Refuses with `refusals` in turn, then takes what comes."""

    def __init__(self, *refusals: int) -> None:
        self._refusals = list(refusals)
        self.taken: list[Any] = []

    async def patch(self, path: str, patch: Any) -> None:
        if self._refusals:
            raise ApiError(self._refusals.pop(0), "Reason", "message")
        self.taken.append(patch["status"])


async def test_a_conflict_is_not_taken_for_written() -> None:
    api: Any = Api(409)
    writer, kept = StatusWriter(api, "jobs"), Kept("u", {})
    with pytest.raises(ApiError):
        await writer.write(JOB, kept, {"phase": "Running", "completedIndexes": "0"})
    assert kept.status == {}
    # The next look writes it, all of it: an index that completed must not be forgotten.
    assert await writer.write(JOB, kept, {"phase": "Running", "completedIndexes": "0"}) is None
    assert api.taken == [{"phase": "Running", "completedIndexes": "0"}]


async def test_nobody_is_told_again_about_an_object_that_is_gone() -> None:
    api: Any = Api(404)
    writer, kept = StatusWriter(api, "jobs"), Kept("u", {})
    assert await writer.write(JOB, kept, {"phase": "Running"}) is None
    assert await writer.write(JOB, kept, {"phase": "Running"}) is None
    assert api.taken == []

"""What the owner of an object that is quarantined reads on it, though the API server may not take it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any

import pytest

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting import quarantine_reporter
from cotide_operator.reporting.quarantine_reporter import MAX_RETRIES, QuarantineReporter


class Scene:
    """Stands for the client, the dispatcher and the recorder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(quarantine_reporter, "AGAIN_SECONDS", 0.0)
        self.work: dict[Hashable, Callable[[], Awaitable[None]]] = {}
        self.full = False
        self.answers: list[ClusterError] = []
        self.tries = 0
        self.written: list[str] = []
        self.cache = ObjectCache()
        stand_in: Any = self
        self.reporter = QuarantineReporter(
            stand_in, stand_in, self.cache, stand_in, Metrics(), scheduler_names=("cotide",)
        )  # fmt: skip
        self.reporter.lead()

    def misconfigured(self, *said: str) -> None: ...

    def submit(self, key: Hashable, work: Callable[..., Awaitable[None]], namespace: str, *arguments: object) -> bool:
        if not self.full:
            self.work[key] = partial(work, *arguments)
        return not self.full

    async def patch_blindly(self, path: str, body: dict[str, Any], kind: str) -> None:
        self.tries += 1
        if self.answers:
            raise self.answers.pop(0)
        self.written.append(body["status"]["conditions"][0]["message"])

    def quarantine_object(self, fault: str, version: str) -> None:
        self.cache.quarantine.put("jobs", "ns/j", "translation", fault, uid="u", version=version)

    async def settle(self) -> None:
        """Write what waits, and what follows from that, until nothing does."""
        for _ in range(4 * MAX_RETRIES):
            work, self.work = list(self.work.values()), {}
            for one in work:
                await one()
            await asyncio.sleep(0)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def test_a_condition_that_the_server_did_not_take_is_written_later(scene: Scene) -> None:
    scene.answers = [ClusterError("no answer"), ApiError(500, "InternalError", "etcd")]
    scene.quarantine_object("no image", "1")
    await scene.settle()
    assert (scene.tries, scene.written) == (3, ["is quarantined until it changes: no image"])


async def test_a_condition_for_which_the_lane_had_no_room_is_written_later(scene: Scene) -> None:
    scene.full = True
    scene.quarantine_object("no image", "1")
    scene.full = False
    await scene.settle()
    assert len(scene.written) == 1


async def test_of_an_object_that_changed_meanwhile_only_what_is_wrong_by_now_is_written(scene: Scene) -> None:
    scene.answers = [ClusterError("no answer")]
    scene.quarantine_object("no image", "1")
    for work in list(scene.work.values()):
        await work()
    scene.quarantine_object("no class", "2")
    await scene.settle()
    assert scene.written == ["is quarantined until it changes: no class"]


@pytest.mark.parametrize(
    ("answer", "tries"), [(ApiError(403, "Forbidden", "no"), 1), (ApiError(503, "Down", "down"), 1 + MAX_RETRIES)]
)
async def test_what_can_never_be_written_is_left(scene: Scene, answer: ApiError, tries: int) -> None:
    scene.answers = [answer] * 99
    scene.quarantine_object("no image", "1")
    await scene.settle()
    assert scene.tries == tries

"""Ten thousand pods are looked at in turns, and what is to be made is made when its turn comes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import pytest

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.controllers import turns
from cotide_operator.controllers.child_pod_writer import ChildPodWriter


async def test_others_have_their_turn_while_many_items_are_worked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    seen: list[int] = []

    async def another() -> None:
        for _ in range(3):
            seen.append(len(done))
            await asyncio.sleep(0)

    done: list[int] = []

    def work(item: int) -> int:
        done.append(item)
        return 2 * item

    other = asyncio.create_task(another())
    assert await turns.in_turns(work, range(100)) == [2 * number for number in range(100)]
    await other
    assert seen == [0, 16, 32], "every 16 items somebody looks at the clock"


async def test_a_manifest_is_made_when_its_turn_comes_and_none_after_a_refusal() -> None:
    made: list[int] = []

    class Quota:
        async def create(self, path: str, body: dict[str, Any]) -> None:
            raise ApiError(403, "Forbidden", "exceeded quota")

    def manifest(number: int) -> dict[str, Any]:
        made.append(number)
        return {"metadata": {"name": f"p{number}", "namespace": "ns"}}

    writer = ChildPodWriter(cast(KubeClient, Quota()), ObjectCache())
    outcome = await writer.make([partial(manifest, number) for number in range(10_000)])
    assert outcome.trouble is not None
    assert made == [0]

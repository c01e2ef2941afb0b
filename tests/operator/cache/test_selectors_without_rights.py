"""Services and controllers that may not be read keep nobody waiting: only their pods are not spread by default."""

from __future__ import annotations

import asyncio
import logging

import pytest

from cotide_kube.answers import ApiError
from cotide_kube.credentials import Credentials
from cotide_operator.cache.object_cache import KINDS, SELECTOR_KINDS, Kind
from cotide_operator.cache.reflectors import Informers


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
async def test_without_the_right_to_read_services_all_else_goes_on_and_one_line_says_so(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(informers: Informers, kind: Kind, path: str) -> None:
        del informers
        raise ApiError(status, "Forbidden", f"{kind} is forbidden", f"GET {path}")

    monkeypatch.setattr(Informers, "_follow", refuse)
    monkeypatch.setattr("cotide_operator.cache.reflectors.AGAIN_SECONDS", 0.0)
    informers = Informers(Credentials("http://127.0.0.1:1"))
    for kind in KINDS:
        if kind not in SELECTOR_KINDS:
            informers.cache.mark_synced(kind)
    with caplog.at_level(logging.WARNING):
        tasks = [asyncio.create_task(informers._follow_if_allowed(kind)) for kind in SELECTOR_KINDS]
        for _ in range(20):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert informers.cache.synced
    said = [record.getMessage() for record in caplog.records if "not spread by default" in record.getMessage()]
    assert len(said) == len(SELECTOR_KINDS)
    assert any("services" in line for line in said)

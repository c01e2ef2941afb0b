"""kopf opens lists and watches at our pace, and stays away no longer than our own client."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_server import refuses, scripted_server
from yarl import URL

from cotide_kube.credentials import Credentials
from cotide_kube.reflector import RECONNECT
from cotide_operator.controllers import kopf_session as kopf_session_module
from cotide_operator.controllers.kopf_session import kopf_session


@pytest.mark.parametrize("query", ["watch=true", "limit=500"])
async def test_kopf_lists_and_watches_at_once_and_then_at_growing_intervals(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def noted(seconds: float, result: Any = None) -> Any:
        waits.append(seconds)
        return result

    pace, url = kopf_session_module.WatchPace(), URL(f"http://h/apis/cotide.dev/v1alpha1/jobs?{query}")
    monkeypatch.setattr(kopf_session_module.asyncio, "sleep", noted)
    for _ in range(30):
        await pace.hold("GET", url)
        await pace.hold("PATCH", url)
        await pace.hold("GET", url.update_query({"continue": "t"}))
    assert len(waits) == 29
    assert waits[-1] >= RECONNECT.cap_seconds / 2
    assert sum(waits[:12]) > 6.5


@pytest.mark.parametrize(
    ("asked", "seen"), [("3600", "2"), ("1", "1"), ("inf", "2"), ("Wed, 21 Oct 2026 07:28:00 GMT", "2"), (None, "2")]
)
async def test_kopf_stays_away_no_longer_than_our_bound(asked: str | None, seen: str) -> None:
    headers = {} if asked is None else {"Retry-After": asked}
    async with scripted_server() as server, kopf_session(Credentials(server.url)).aiohttp_session as http:
        server.then(refuses(429, "TooManyRequests", headers=headers), refuses(500, headers={"Retry-After": "60"}))
        async with http.get(f"{server.url}/apis") as throttled, http.get(f"{server.url}/apis") as broken:
            assert throttled.headers["Retry-After"] == seen
            assert broken.headers["Retry-After"] == "60"

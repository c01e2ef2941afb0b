"""Requests of the official client, with something done around those that are meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def around_scaling(api: Any, does: Callable[[Callable[[], Any]], Any]) -> None:
    """Have something done around each PATCH of a scale subresource, which it is given as a call."""
    original = api.call_api

    def call_api(method: str, *rest: Any, **more: Any) -> Any:
        def send() -> Any:
            return original(method, *rest, **more)

        return does(send) if method == "PATCH" and rest[0].endswith("/scale") else send()

    api.call_api = call_api

"""Between two runs of the demo the cluster is emptied; what stays says so, with the log of the operator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cotide_core.errors import ClusterError
from cotide_sim.demo import act


class Collections:
    """An API server on which objects outlive their deletion."""

    async def delete(self, path: str, propagation: str) -> None:
        """Deletes nothing."""

    async def list(self, path: str) -> list[object]:
        return [{}] if path == act._PODS else []


def a_stage() -> Any:
    return SimpleNamespace(client=Collections(), check=lambda: None)


async def test_what_stays_is_counted_and_the_operators_log_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(act, "CLEAN_WALL_SECONDS", -1.0)
    operator: Any = SimpleNamespace(check=lambda: None, tail=lambda: "its last line")
    with pytest.raises(ClusterError, match=r"1 object still there (?s:.*)its last line"):
        await act._clean(a_stage(), operator)


async def test_an_operator_that_ended_is_told_at_once() -> None:
    def ended() -> None:
        raise ClusterError("the demo's operator ended")

    operator: Any = SimpleNamespace(check=ended, tail=str)
    with pytest.raises(ClusterError, match="operator ended"):
        await act._clean(a_stage(), operator)

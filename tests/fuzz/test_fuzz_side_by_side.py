"""Targets are fuzzed side by side, and what became of them is said in their order."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from subprocess import CompletedProcess

import fuzz
import pytest

PATIENCE_SECONDS = 30.0


def test_what_became_of_targets_is_said_in_their_order_whoever_is_done_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    second_is_done = threading.Event()

    def rounds(name: str, *_: object) -> CompletedProcess[str]:
        if name == "first":
            assert second_is_done.wait(PATIENCE_SECONDS), "they run one after the other"
        else:
            second_is_done.set()
        return CompletedProcess([], 0, name, "")

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(fuzz, "_rounds", rounds)
    done = fuzz.side_by_side(["first", "second"], tmp_path, 1.0, tmp_path)
    assert [one.stdout for one in done] == ["first", "second"]

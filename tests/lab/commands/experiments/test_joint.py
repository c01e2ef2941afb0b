"""`cotide experiment joint`: what was played stays played, and a wrong name is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cotide_core.errors import InputError
from cotide_lab.commands.experiments.joint import command
from cotide_lab.experiments.joint import contest

SMALL = ["--nodes", "2", "--seconds", "60", "--seeds", "1", "-o", "json"]


def joint(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*SMALL, *arguments], catch_exceptions=False, standalone_mode=False)


def rows(found: Result) -> list[dict[str, Any]]:
    return list(json.loads(found.stdout)["rows"])


def test_a_run_that_was_cut_goes_on_with_what_its_journal_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = ["--journal", str(tmp_path / "joint")]
    (first,) = rows(joint("--only", "fifo", *journal))
    played: list[str] = []

    def play(one: contest.Contender, *_: object) -> dict[str, float]:
        played.append(one.policy)
        return dict.fromkeys(contest.FIGURES, 1.0)

    monkeypatch.setattr(contest, "_play", play)
    both = rows(joint("--only", "fifo", "--only", "qpsm", *journal))
    assert played == ["qpsm"]
    assert [one["name"] for one in both] == ["qpsm", "fifo"]
    assert both[1] == first
    joint("--only", "fifo", "--nodes", "3", *journal)
    assert played == ["qpsm", "fifo"]  # three nodes are another run


def test_a_name_that_no_contender_has_is_one_sentence() -> None:
    with pytest.raises(InputError, match="'lifo' is none of predictive, "):
        joint("--only", "lifo")

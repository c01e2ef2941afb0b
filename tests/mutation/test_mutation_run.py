"""When a run over mutants fails: too many survivors, or one without a reason."""

from __future__ import annotations

from pathlib import Path

from mutation_run import ACCEPTED, Accepted, Mutant, read_accepted, verdict

ROOT = Path(__file__).resolve().parents[2]
ALIVE = Mutant("a.py", 7, "Lease._due", "if now > end:", "if now >= end:", "")
REASONED = Accepted("a.py", "Lease._due", "if now > end:", "if now >= end:", "no two clocks agree on one instant")


def test_a_run_without_survivors_holds() -> None:
    assert verdict(300, [], []) == []


def test_a_survivor_needs_a_reason() -> None:
    assert verdict(300, [ALIVE], []) == ["a.py:7: survives without a reason in accepted.toml"]
    assert verdict(300, [ALIVE], [REASONED]) == []
    assert verdict(300, [ALIVE], [Accepted("a.py", "Lease._due", "if now > end:", "if now >= end:", " ")]) != []
    assert verdict(300, [ALIVE], [Accepted("b.py", "Lease._due", "if now > end:", "if now >= end:", "why")]) != []


def test_more_than_one_in_twenty_is_too_many_whatever_the_reasons() -> None:
    assert verdict(20, [ALIVE], [REASONED]) == []
    assert verdict(20, [ALIVE] * 2, [REASONED]) == ["2 of 20 mutants survive, at most 5% may"]


def test_each_accepted_survivor_names_lines_that_are_still_there_and_a_reason() -> None:
    for one in read_accepted(ACCEPTED):
        lines = [line.strip() for line in (ROOT / one.file).read_text(encoding="utf-8").splitlines()]
        assert all(line in lines for line in one.was.split(" / ")), one.was
        assert one.reason.strip(), one.was

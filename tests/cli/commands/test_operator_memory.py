"""The operator has freed memory given back, unless somebody else has decided how."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cotide_cli.commands import operator_command


def options_set(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    options: dict[int, int] = {}
    library = SimpleNamespace(mallopt=options.__setitem__)
    monkeypatch.setattr(operator_command.ctypes, "CDLL", lambda _: library)
    operator_command._give_memory_back()
    return options


def test_the_allocator_is_told_to_give_large_pieces_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert options_set(monkeypatch) == operator_command.ALLOCATOR


def test_who_sets_the_allocator_outside_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    assert options_set(monkeypatch) == {}


def test_a_c_library_without_such_options_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_command.ctypes, "CDLL", lambda _: SimpleNamespace())
    operator_command._give_memory_back()

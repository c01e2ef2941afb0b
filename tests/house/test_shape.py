"""The shape of the house: folders, files and functions that a reader can hold in his head."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import ROOT

PACKAGES = [ROOT / root for root in ("operator", "predictors", "sim")]
MODULES_OF_A_FOLDER = 16
LINES_OF_A_TEST_FILE = 400
TEST_PATH = re.compile(r"\btests/[\w/]+\.(?:py|yaml)\b")


def sources(*roots: Path) -> list[Path]:
    return sorted(path for root in roots for path in root.rglob("*.py"))


@pytest.mark.parametrize("root", ["operator", "predictors", "sim", "tests"])
def test_a_folder_holds_few_modules(root: str) -> None:
    held: dict[Path, int] = {}
    for path in sources(ROOT / root):
        if path.name != "__init__.py":
            held[path.parent] = held.get(path.parent, 0) + 1
    assert {str(folder.relative_to(ROOT)): n for folder, n in held.items() if n > MODULES_OF_A_FOLDER} == {}


def test_a_test_file_is_short() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in sources(ROOT / "tests")}
    assert {str(path.relative_to(ROOT)): n for path, n in lines.items() if n > LINES_OF_A_TEST_FILE} == {}


def test_tests_find_what_they_share_by_the_configuration() -> None:
    edit = "sys.path" + "."
    assert [str(path.relative_to(ROOT)) for path in sources(ROOT / "tests") if edit in path.read_text()] == []


def test_tests_that_are_named_as_proof_are_there() -> None:
    named = {
        (str(path.relative_to(ROOT)), found)
        for path in [*sources(*PACKAGES), *sources(ROOT / "tests"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile"]
        for found in TEST_PATH.findall(path.read_text())
    }
    assert sorted((where, name) for where, name in named if not (ROOT / name).exists()) == []

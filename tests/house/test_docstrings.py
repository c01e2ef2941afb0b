"""What docstrings say of the house: a caller that is named is there, and no private code stands for a paper."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from repository import ROOT

SOURCES = sorted(path for root in ("operator", "predictors", "sim") for path in (ROOT / root).rglob("*.py"))
CALLERS = re.compile(r"(?:Called|Used|Read|Run|Started|Driven|Asked|Written)(?: \w+)? by ([^.;:]*)")
CALLERS_FIRST = re.compile(
    r"((?:`[\w.]+`,? |(?:and|or|the) )+)(?:calls?|uses?|reads?|runs?|starts?|owns?|makes?|fills?|writes?) (?:it|them)\b"
)
NAMED = re.compile(r"`([A-Za-z_][\w.]*)`")
CODES = re.compile(r"\b[Ss]eed 00\d|\bFACTS\b|\bs[1-8]-[a-z]")
RENAMED_EXPERIMENTS = ROOT / "sim" / "cotide_lab" / "commands" / "experiment_command.py"
"""Holds the one table of earlier names."""


def names_in(tree: ast.Module) -> set[str]:
    """What a module defines: functions, classes, methods."""
    return {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


def known() -> set[str]:
    """Every module, folder, function and class of the packages."""
    found: set[str] = set()
    for path in SOURCES:
        found |= {path.stem, *path.relative_to(ROOT).parts[1:-1]}
        found |= names_in(ast.parse(path.read_text()))
    return found


def callers_in(docstring: str) -> list[str]:
    """The parts of a docstring that name its callers, in the passive or in the active voice."""
    return [*CALLERS.findall(docstring), *CALLERS_FIRST.findall(docstring)]


def test_a_caller_that_a_module_names_is_there() -> None:
    there = known()
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for sentence in callers_in(ast.get_docstring(ast.parse(path.read_text())) or "")
        for name in NAMED.findall(sentence)
        if not set(name.split(".")) <= there
    ]
    assert missing == []


@pytest.mark.parametrize("folder", ["operator", "predictors", "sim", "docs"])
def test_papers_and_experiments_are_called_by_their_names(folder: str) -> None:
    texts = [path for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind) if path != RENAMED_EXPERIMENTS]
    coded = [str(path.relative_to(ROOT)) for path in [*texts, ROOT / "README.md"] if CODES.search(path.read_text())]
    assert coded == []


@pytest.mark.parametrize(("package", "most"), [("operator/cotide_core", 22), ("operator/cotide_operator", 20)])
def test_a_package_has_few_rooms_at_its_top(package: str, most: int) -> None:
    top = [
        path for path in Path(ROOT / package).iterdir() if path.name not in ("__pycache__", "__init__.py", "py.typed")
    ]
    assert len(top) <= most


def test_no_folder_of_the_core_or_the_operator_holds_more_than_sixteen_modules() -> None:
    folders = {path.parent for path in SOURCES if "operator" in path.relative_to(ROOT).parts[0]}
    full = {
        str(folder.relative_to(ROOT)): count
        for folder in folders
        if (count := len([path for path in folder.glob("*.py") if path.name != "__init__.py"])) > 16
    }
    assert full == {}

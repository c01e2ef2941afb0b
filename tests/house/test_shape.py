"""The shape of the house: folders, files and functions that a reader can hold in his head."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import ROOT

PACKAGES = [ROOT / root for root in ("operator", "predictors", "sim")]
MODULES_OF_A_FOLDER = 16
LINES_OF_A_TEST_FILE = 400
LINES_OF_A_FUNCTION = 80
PARAMETERS_OF_A_FUNCTION = 8
LONG = "One function, because"
WIDE = "It takes many arguments, because"
"""How a docstring begins the reason of a function that is longer, or takes more."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
BUILT = ("pod", "node", "job", "workload")
BUILDERS = ROOT / "tests" / "support" / "builders"
TEST_PATH = re.compile(r"\btests/[\w/]+\.(?:py|yaml)\b")


def sources(*roots: Path) -> list[Path]:
    return sorted(path for root in roots for path in root.rglob("*.py"))


def functions(*roots: Path) -> Iterator[tuple[str, Function, str]]:
    """Every function: where it stands, itself, and its docstring in one line."""
    for path in sources(*roots):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Function):
                name = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                yield name, node, " ".join((ast.get_docstring(node) or "").split())


def parameters(node: Function) -> int:
    """How many arguments a caller has to put in order: a constructor's named ones are the parts of its class."""
    given = [*node.args.posonlyargs, *node.args.args]
    if node.name != "__init__":
        given += node.args.kwonlyargs
    return sum(one.arg not in ("self", "cls") for one in given)


def is_command(node: Function) -> bool:
    """Whether click hands over the arguments, one for each option."""
    return any("command(" in ast.unparse(decorator) for decorator in node.decorator_list)


@pytest.mark.parametrize("root", ["operator", "predictors", "sim", "tests", "benchmarks"])
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


def is_thin_and_reasoned(builder: Function, module: ast.Module) -> bool:
    """Whether a builder says why it is there and does nothing but call the shared ones in a line or a few."""
    shared = {path.stem for path in sources(BUILDERS)}
    imported = {
        name.asname or name.name
        for one in module.body
        if isinstance(one, ast.Import | ast.ImportFrom)
        for name in one.names
        if name.name in shared or (isinstance(one, ast.ImportFrom) and one.module in shared)
    }
    called = {ast.unparse(one.func).partition(".")[0] for one in ast.walk(builder) if isinstance(one, ast.Call)}
    return ast.get_docstring(builder) is not None and bool(called & imported)


def test_tests_share_their_builders_of_pods_nodes_jobs_and_workloads() -> None:
    private = [
        f"{path.relative_to(ROOT)}:{one.lineno} {one.name}"
        for path in sources(ROOT / "tests")
        if path.parent != BUILDERS
        for module in [ast.parse(path.read_text())]
        for one in module.body
        if isinstance(one, Function) and one.name.strip("_") in BUILT and not is_thin_and_reasoned(one, module)
    ]
    assert private == [], "call those of tests/support/builders, and say in a docstring what this test needs beside"


def test_tests_that_are_named_as_proof_are_there() -> None:
    named = {
        (str(path.relative_to(ROOT)), found)
        for path in [*sources(*PACKAGES), *sources(ROOT / "tests"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile"]
        for found in TEST_PATH.findall(path.read_text())
    }
    assert sorted((where, name) for where, name in named if not (ROOT / name).exists()) == []


def test_a_function_is_short_or_says_why_not() -> None:
    found = functions(*PACKAGES, ROOT / "tests", ROOT / "benchmarks")
    lines = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node, text in found if LONG not in text}
    assert {name: n for name, n in lines.items() if n > LINES_OF_A_FUNCTION} == {}


def test_a_public_function_takes_few_arguments_or_says_why_not() -> None:
    taken = {
        name: parameters(node)
        for name, node, text in functions(*PACKAGES)
        if not (node.name.startswith("_") and node.name != "__init__") and WIDE not in text and not is_command(node)
    }
    assert {name: n for name, n in taken.items() if n > PARAMETERS_OF_A_FUNCTION} == {}

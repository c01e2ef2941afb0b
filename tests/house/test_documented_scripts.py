"""Scripts and modules that the pages run are there, with the options that they are given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import pages
from repository import ROOT

SCRIPT = re.compile(r"\bpython ((?:-m cotide_[\w.]+)|(?:(?:benchmarks|tests)/[\w/]+\.py))((?:[^`\n#|]|\n(?=--))*)")
"""A line, and further ones that begin with an option."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def program_of(named: str) -> str | None:
    """Return the text of a script or module and of what stands beside it, which may hold its options."""
    if named.startswith("-m "):
        parts = Path(*named.removeprefix("-m ").split("."))
        roots = [ROOT / root for root in ("operator", "predictors", "sim")]
        files = [root / part for root in roots for part in (parts.with_suffix(".py"), parts / "__main__.py")]
    else:
        files = [ROOT / named]
    found = next((file for file in files if file.is_file()), None)
    return None if found is None else "\n".join(file.read_text() for file in found.parent.glob("*.py"))


def unknown(text: str) -> list[str]:
    """Return the scripts of a page that are not there, and the options that theirs do not know."""
    wrong = []
    for named, options in SCRIPT.findall(text):
        program = program_of(named)
        if program is None:
            wrong.append(named)
        else:
            wrong += [f"{named} {option}" for option in OPTION.findall(options) if f'"{option}"' not in program]
    return wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`python benchmarks/days/soak.py --seconds 300`", []),
        ("`python benchmarks/days/soak.py --seconds 300\n--minutes 5`", ["benchmarks/days/soak.py --minutes"]),
        ("$ python benchmarks/days/sock.py", ["benchmarks/days/sock.py"]),
        ("    python -m cotide_sim.cluster.comparison --seed 1", ["-m cotide_sim.cluster.comparison --seed"]),
    ],
)
def test_a_script_or_an_option_that_there_is_not_is_found(text: str, wrong: list[str]) -> None:
    assert unknown(text) == wrong


def test_scripts_of_pages_and_their_options_are_there() -> None:
    shown = pages()
    assert sum(len(SCRIPT.findall(text)) for text in shown.values()) > 20
    assert {page: wrong for page, text in shown.items() if (wrong := unknown(text))} == {}

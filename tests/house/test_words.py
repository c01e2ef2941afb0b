"""The words of the house: a name says what is meant, since a word of many meanings says nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import ROOT

CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
ROOTS = ("operator", "predictors", "sim", "benchmarks", "tests", "examples", "deploy")
NOUNS = {
    "place": "index, position, row, slot, part, room or node: whichever is meant",
    "told": "what it is: an event, a forecast, instructions, a message, whatever was published, reported or answered",
    "look": "context, view, poll, check or sample",
    "witness": "observer, checker or recorder",
}
"""What to say instead. To place a pod, to look at one and to be told are verbs, and stay."""
FORMS = {
    "places": "place",
    "untold": "told",
    "looks": "look",
    "looked": "look",
    "looking": "look",
    "witnesses": "witness",
}
VERBS = {
    "to_place": "whether there is a pod to place",
    "PlaceSettings": "settings of the command that places services",
    "_look": "a method",
}

ABANDONED = {
    "surroundings": "dependencies, context or environment",
    "sightings": "observations",
    "affiliation": "ownership",
    "gardener": "refitter",
    "foresee": "predict",
    "in_vain": "is_stale",
    "same_wish": "is_irrelevant_update",
    "needs_placing": "is_schedulable",
    "must_ask": "cache_misses",
    "few_mixes": "small_batch",
    "nursery": "fork_server",
    "breakages": "mutants",
}
"""Private words that once stood for a term of the field, and the term."""


def sources() -> list[Path]:
    return sorted(path for root in ROOTS for path in (ROOT / root).rglob("*.py"))


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each variable, parameter, attribute, class and alias that a module binds."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name


def function_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name


def words_of(name: str) -> set[str]:
    return set(CAPITAL.sub("_", name).lower().split("_"))


def nouns(source: str) -> list[tuple[int, str]]:
    """Names of a source in which one of the words is a noun."""
    return [
        (line, name)
        for line, name in bound_names(ast.parse(source))
        if (NOUNS.keys() | FORMS.keys()) & words_of(name) and name not in VERBS
    ]


def test_no_name_says_place_told_look_or_witness_where_the_field_has_a_term() -> None:
    assert len(sources()) > 1000, "the house is looked at, not an empty folder"
    found = {f"{path.relative_to(ROOT)}:{line}": name for path in sources() for line, name in nouns(path.read_text())}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "for place, job in enumerate(jobs): pass",
        "def moved(place): pass",
        "self._places = []",
        "class Work:\n    place: int",
        "by_place = {}",
        "class Place: pass",
        "PLACE = 1",
        "import a as place",
        "[place for place in jobs]",
        "told = scheduler.handle(events)",
        "class ToldRunTimes: pass",
        "def job_status(look): pass",
        "LOOK_SECONDS = 1",
        "class Witness: pass",
    ],
)
def test_the_noun_is_found_wherever_a_name_is_bound(source: str) -> None:
    assert len(nouns(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def place(pod): pass",
        "placer.place(pod)",
        "to_place = True",
        "placement = placed = 1",
        "f(place='x')",
        "def look(): pass",
    ],
)
def test_the_verb_and_what_comes_of_it_may_stay(source: str) -> None:
    assert nouns(source) == []


def test_no_name_is_a_private_word_where_the_field_has_a_term() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line} {name}": ABANDONED[name.strip("_").lower()]
        for path in sources()
        for tree in [ast.parse(path.read_text())]
        for line, name in (*bound_names(tree), *function_names(tree))
        if name.strip("_").lower() in ABANDONED
    }
    assert found == {}

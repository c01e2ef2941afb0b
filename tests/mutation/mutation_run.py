"""What a run over mutants is held to: survivors, those that are accepted with a reason, and the verdict.

Called by `mutants`. Pure, and without the mutation tool, which only `make mutants` installs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ACCEPTED = Path(__file__).with_name("accepted.toml")
MAX_SURVIVING_SHARE = 0.05
"""The bar: at most one mutant in twenty survives, those with a reason included."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one place.

    Attributes
    ----------
    file : path from the root of the repository. line : where the change is.
    within : the class and function around it, empty for the module.
    was, becomes : the changed lines without indents, with `` / `` between lines.
    code : the whole module as it becomes.
    """

    file: str
    line: int
    within: str
    was: str
    becomes: str
    code: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """A survivor that no test should kill, and the reason; the fields are those of `Mutant`."""

    file: str
    within: str
    was: str
    becomes: str
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Whether a survivor is this one, wherever its line is by now."""
        found = (mutant.file, mutant.within, mutant.was, mutant.becomes)
        return found == (self.file, self.within, self.was, self.becomes)


def read_accepted(path: Path = ACCEPTED) -> list[Accepted]:
    """Return the committed list."""
    return [Accepted(**load) for load in tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", ())]


def verdict(run: int, survivors: Sequence[Mutant], accepted: Sequence[Accepted]) -> list[str]:
    """Return one sentence for each reason why the run fails; empty where it holds."""
    found = []
    if len(survivors) > MAX_SURVIVING_SHARE * run:
        found.append(f"{len(survivors)} of {run} mutants survive, at most {MAX_SURVIVING_SHARE:.0%} may")
    unexplained = [
        survivor for survivor in survivors if not any(two.covers(survivor) and two.reason.strip() for two in accepted)
    ]
    return found + [f"{one.file}:{one.line}: survives without a reason in {ACCEPTED.name}" for one in unexplained]

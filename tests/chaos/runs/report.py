"""What a run came to: what the checker saw, what was left behind, and every rule that was broken.

Filled by `chaos_run` at the end of a run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from invariant_checker import InvariantChecker
from replica import Replica

from cotide_core.errors import CotideError
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_lab.commands.ledger_replay import replay

HISTORY_LINES: Final = 400
_KOPF_TRIES_AGAIN: Final = re.compile(r"\S+ ERROR +Request attempt #\d+/\d+ failed; will retry")
"""What kopf says of a request that met a fault, and that it repeats."""
_DISK_REFUSES: Final = re.compile(r"\S+ ERROR +\S* *the ledger in \S+ can't be written: .*; scheduling continues")
"""What an operator says of a disk that takes nothing, as it must."""


@dataclass
class Report:
    """What a run came to."""

    violations: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    seconds: float = 0.0
    starts: int = 0
    ends: list[int] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    bound: int = 0
    succeeded: int = 0
    resized: int = 0
    granted: int = 0
    refused: int = 0
    """Sizes that kubelets set, phases that were granted, and pods that had no room when they came."""
    compared: int = 0
    """Pairs of waiting pods whose order was looked at after a restart."""
    folder: Path = Path()

    def of_checker(self, checker: InvariantChecker) -> None:
        """Take over what was seen on the way."""
        self.violations += checker.violations
        self.bound = len(checker.bound)
        self.succeeded = sum(len(uids) for uids in checker.succeeded.values())
        self.history = checker.history[-HISTORY_LINES:]

    def of_evictions(self, paths: Iterable[str], checker: InvariantChecker) -> None:
        """Look whether anybody asked for the eviction of an online pod, granted or not."""
        for path in paths:
            *_, namespace, _, name, _ = path.split("/")
            if any(f" pod {namespace}/{name} made, online" in line for line in checker.history):
                self.violations.append(f"the eviction of the online pod {namespace}/{name} was asked for")

    def of_replica(self, replica: Replica, folder: Path, *, disk: bool = False) -> None:
        """Look at exit codes, logs and ledgers of one replica's operators."""
        self.starts += replica.starts
        self.ends += replica.ends
        self.violations += replica.violations + manners(replica.name, folder, disk=disk)
        self.violations += ledgers(replica.name, folder)


def manners(name: str, folder: Path, *, disk: bool = False) -> list[str]:
    """Return lines of a replica's logs that no operator should write."""
    bad: list[str] = []
    for log in sorted(folder.glob(f"{name}-*.log")):
        lines = re.findall(r"^(?:\S+ ERROR .*|Traceback .*)$", log.read_text("utf-8"), flags=re.MULTILINE)
        lines = [line for line in lines if not (disk and _DISK_REFUSES.match(line))]
        bad += [f"{log.name}: {line}" for line in lines if not _KOPF_TRIES_AGAIN.match(line)]
    return bad[:3]


def ledgers(name: str, folder: Path) -> list[str]:
    """Replay every ledger that a replica's operators left, and say which do not."""
    wrong = []
    files = sorted((folder / f"ledger-{name}").glob("ledger*.jsonl"))
    for file in files:
        lines = file.read_bytes().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # the writer was killed in the middle of it
        if not lines:
            continue  # killed before the header had left its buffer
        try:
            difference = replay(lines, HeuristicCatalogue()).difference
        except CotideError as error:
            difference = str(error)
        if difference is not None:
            wrong.append(f"the ledger {file.name} of {name} does not replay: {difference}")
    if not files:
        wrong.append(f"{name} left no ledger")
    return wrong

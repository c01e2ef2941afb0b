"""The journal of outcomes: every finished cell, written once and on the disk before the next is counted as finished.

Called by `sweep`, and by the lab for its own cells. Durability is `journal_file`'s; here a record is an outcome.
Invariant: what `Journal.outcomes` holds has survived whatever ended the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from cotide_core.errors import InputError
from cotide_lab.sweeps.cells import Cell, Outcome
from cotide_lab.sweeps.journal_file import JournalFile


class KeyedCell(Protocol):
    """What was run, known by its key."""

    @property
    def key(self) -> str:
        """Return the sha256 of all parameters."""
        ...


CellT = TypeVar("CellT", bound=KeyedCell)
CellT_co = TypeVar("CellT_co", bound=KeyedCell, covariant=True)


class CellOutcome(Protocol[CellT_co]):
    """What came of a cell: a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def cell(self) -> CellT_co:
        """Return the cell."""
        ...


OutcomeT = TypeVar("OutcomeT", bound=CellOutcome[Any])


class Journal(Generic[OutcomeT]):
    """An open journal of outcomes.

    Parameters
    ----------
    kind : the required kind in the head of the file.
    read : makes an outcome of its record.

    Attributes
    ----------
    outcomes : by the cells' keys; of a cell that was run again after a failure, the latest.
    remarks : a sentence for each broken line that was found.

    Raises
    ------
    InputError
        As `JournalFile` does.
    """

    def __init__(self, path: Path, kind: str, read: Callable[[dict[str, Any]], OutcomeT]) -> None:
        self.path = path
        self._file = JournalFile(path, kind)
        self.remarks = self._file.remarks
        found = [read(record) for record in self._file.records]
        self.outcomes = {outcome.cell.key: outcome for outcome in found}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.__exit__(kind, error, at)

    def add(self, outcome: OutcomeT) -> None:
        """Write an outcome; on return it is on the disk.

        Raises
        ------
        InputError
            When the disk refuses.
        """
        self._file.append({"key": outcome.cell.key, **asdict(outcome)})
        self.outcomes[outcome.cell.key] = outcome

    def refuse_another(
        self, cells: Iterable[CellT], named: Callable[[CellT], tuple[str, str | None]], sentence: str
    ) -> None:
        """Refuse an input that is not the one which the journal has results of under the same name.

        Parameters
        ----------
        named : the input's name and its sha256, None for one of ours.
        sentence : with ``{name}``, ``{then}`` and ``{now}``, the beginnings of both checksums.

        Raises
        ------
        InputError
            Names the input and both checksums.
        """
        known = dict(named(outcome.cell) for outcome in self.outcomes.values())
        for name, digest in map(named, cells):
            before = known.setdefault(name, digest)
            if before != digest:
                then, now = (f"sha256 {text[:12]}..." if text else "one of ours" for text in (before, digest))
                raise InputError(sentence.format(name=name, then=then, now=now), file=str(self.path))


class SweepJournal(Journal[Outcome]):
    """An open journal of a sweep."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "sweep", _outcome)

    def check(self, cells: Iterable[Cell]) -> None:
        """Refuse a trace, or a policy's file, of another content under a known name.

        Raises
        ------
        InputError
            Names it and both checksums.
        """
        cells = list(cells)
        self.refuse_another(
            cells,
            lambda cell: (cell.trace, cell.trace_sha256),
            "holds results of another {name} ({then}, now {now}); rename the trace or choose another output",
        )
        self.refuse_another(
            cells,
            lambda cell: (cell.policy, cell.policy_sha256),
            "holds results of another policy {name} ({then}, now {now}): its file was changed; rename it or choose "
            "another output",
        )


def _outcome(record: dict[str, Any]) -> Outcome:
    figures = {name: (value, low, high) for name, (value, low, high) in record["figures"].items()}
    return Outcome(
        Cell(**record["cell"]), record["processors"], record["jobs"], figures, record["error"], record["wall_seconds"]
    )

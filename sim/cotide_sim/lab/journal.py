"""The journal of the lab: every finished cell, on the disk before the next counts as finished.

Called by `track` and `report`. Invariant: as `cotide_sim.sweeps.journal_file` says; a data set or a user's file of
another content is refused under a known name.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cotide_core.errors import InputError
from cotide_sim.lab.cells import LabCell, LabOutcome
from cotide_sim.sweeps.journal_file import JournalFile


class LabJournal:
    """An open journal.

    Attributes
    ----------
    outcomes : by the cells' keys; of a cell that was run again, the latest.
    remarks : a sentence for each broken line that was found.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = JournalFile(path, "lab")
        self.remarks = self._file.remarks
        found = [_outcome(record) for record in self._file.records]
        self.outcomes = {outcome.cell.key: outcome for outcome in found}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.__exit__(kind, error, at)

    def add(self, outcome: LabOutcome) -> None:
        """Write an outcome; on return it is on the disk."""
        self._file.append(asdict(outcome))
        self.outcomes[outcome.cell.key] = outcome

    def check(self, cells: list[LabCell]) -> None:
        """Refuse data or a user's file that is not what the journal has results of under the same name.

        Raises
        ------
        InputError
            Names it.
        """
        data = {outcome.cell.data: outcome.cell.data_sha256 for outcome in self.outcomes.values()}
        files = {outcome.cell.predictor: outcome.cell.predictor_sha256 for outcome in self.outcomes.values()}
        for cell in cells:
            if data.setdefault(cell.data, cell.data_sha256) != cell.data_sha256:
                raise InputError(
                    f"holds results of another {cell.data}; rename the file or choose another journal",
                    file=str(self.path),
                )
            if files.setdefault(cell.predictor, cell.predictor_sha256) != cell.predictor_sha256:
                raise InputError(
                    f"holds results of another {cell.predictor}: its file was changed; rename it or choose another "
                    "journal",
                    file=str(self.path),
                )


def _outcome(record: dict[str, Any]) -> LabOutcome:
    blocks = {name: (tuple(sums), tuple(counts)) for name, (sums, counts) in record["blocks"].items()}
    return LabOutcome(
        LabCell(**record["cell"]), record["count"], record["figures"], blocks, record["costs"], record["error"]
    )

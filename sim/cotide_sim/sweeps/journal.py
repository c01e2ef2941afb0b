"""The journal of a sweep: every finished cell, written once and on the disk before the next is counted as finished.

Called by `sweep`. Durability is `journal_file`'s; here a record is an outcome. Invariant: what `Journal.outcomes` holds
has survived whatever ended the process.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cotide_core.errors import InputError
from cotide_sim.sweeps.cells import Cell, Outcome
from cotide_sim.sweeps.journal_file import JournalFile


class Journal:
    """An open journal.

    Attributes
    ----------
    outcomes : by the cells' keys; of a cell that was run again after a failure, the latest.
    remarks : a sentence for each broken line that was found.

    Raises
    ------
    InputError
        As `JournalFile` does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = JournalFile(path, "sweep")
        self.remarks = self._file.remarks
        found = [_outcome(record) for record in self._file.records]
        self.outcomes = {outcome.cell.key: outcome for outcome in found}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.__exit__(kind, error, at)

    def add(self, outcome: Outcome) -> None:
        """Write an outcome; on return it is on the disk.

        Raises
        ------
        InputError
            When the disk refuses.
        """
        self._file.append({"key": outcome.cell.key, **asdict(outcome)})
        self.outcomes[outcome.cell.key] = outcome

    def check_traces(self, cells: list[Cell]) -> None:
        """Refuse a trace that is not the one which the journal has results of under the same name.

        Raises
        ------
        InputError
            Names the trace and both checksums.
        """
        known = {outcome.cell.trace: outcome.cell.trace_sha256 for outcome in self.outcomes.values()}
        for cell in cells:
            digest = known.setdefault(cell.trace, cell.trace_sha256)
            if digest != cell.trace_sha256:
                raise InputError(
                    f"holds results of another {cell.trace} (sha256 {digest[:12]}..., now "
                    f"{cell.trace_sha256[:12]}...); rename the trace or choose another output",
                    file=str(self.path),
                )

    def check_policies(self, cells: list[Cell]) -> None:
        """Refuse a policy's file that is not the one which the journal has results of under the same name.

        Raises
        ------
        InputError
            Names the policy and both checksums.
        """
        known = {outcome.cell.policy: outcome.cell.policy_sha256 for outcome in self.outcomes.values()}
        for cell in cells:
            digest = known.setdefault(cell.policy, cell.policy_sha256)
            if digest != cell.policy_sha256:
                then, now = (f"sha256 {one[:12]}..." if one else "one of ours" for one in (digest, cell.policy_sha256))
                raise InputError(
                    f"holds results of another policy {cell.policy} ({then}, now {now}): its file was changed; rename "
                    "it or choose another output",
                    file=str(self.path),
                )


def _outcome(record: dict[str, Any]) -> Outcome:
    figures = {name: (value, low, high) for name, (value, low, high) in record["figures"].items()}
    return Outcome(
        Cell(**record["cell"]), record["processors"], record["jobs"], figures, record["error"], record["wall_seconds"]
    )

"""The journal of the lab: every finished cell, on the disk before the next counts as finished.

Called by `track` and `report`. Invariant: as of `cotide_lab.sweeps.journal`; a data set or a user's file of another
content is refused under a known name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cotide_lab.predictor_lab.cells import LabCell, LabOutcome
from cotide_lab.sweeps.journal import Journal


class LabJournal(Journal[LabOutcome]):
    """An open journal of the lab."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "lab", _outcome)

    def check(self, cells: Iterable[LabCell]) -> None:
        """Refuse data or a user's file that differs from the journal's results under the same name.

        Raises
        ------
        InputError
            Names it and both checksums.
        """
        cells = list(cells)
        self.refuse_another(
            cells,
            lambda cell: (cell.data, cell.data_sha256),
            "holds results of another {name} ({then}, now {now}); rename the file or choose another journal",
        )
        self.refuse_another(
            cells,
            lambda cell: (cell.predictor, cell.predictor_sha256),
            "holds results of another {name} ({then}, now {now}): its file was changed; rename it or choose another "
            "journal",
        )


def _outcome(record: dict[str, Any]) -> LabOutcome:
    blocks = {name: (tuple(sums), tuple(counts)) for name, (sums, counts) in record["blocks"].items()}
    return LabOutcome(
        LabCell(**record["cell"]), record["count"], record["figures"], blocks, record["costs"], record["error"]
    )

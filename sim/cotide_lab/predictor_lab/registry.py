"""The built-in predictors of each task by name; a user's own comes from a file.

Called by `plan` and `cotide lab list`. Invariant: a listed name can be run; without an optional library its cell
reports this.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotide_lab.predictor_lab.cells import LabSource, Task
from cotide_lab.predictor_lab.run_times.entries import ENTRIES


def names_of(task: Task) -> list[str]:
    """Return the names of a task's predictors."""
    return [name for name, _, _ in rows_of(task)]


def rows_of(task: Task) -> list[tuple[str, str, str]]:
    """Return name, one line of description, and the source, of a task's predictors."""
    if task == "run-time":
        return [(name, entry.summary, entry.source) for name, entry in ENTRIES.items()]
    from cotide_lab.predictor_lab.series.entries import SERIES_ENTRIES

    return [(name, entry.summary, entry.source) for name, entry in SERIES_ENTRIES.items()]


def digests_of_weights(task: Task, sources: Sequence[LabSource]) -> dict[str, str | None]:
    """Return the sha256 of each pretrained model's weights, None without weights; other predictors are left out.

    Raises
    ------
    InputError
        When weights cannot be read.
    """
    if task == "run-time":
        return {}
    from cotide_lab.predictor_lab.series.pretrained import ADAPTERS, digest_of

    folders = dict(pair for source in sources for pair in source.weights)
    return {name: digest_of(folders[name]) if name in folders else None for name in ADAPTERS}

"""The plan of a lab run: data sets, and the cells of tasks x data x predictors x seeds on them.

Called by `cotide lab run`. Invariant: the same files and options give the same cells in the same order; a name in a
table belongs to one data set and one predictor only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cotide_core.errors import InputError
from cotide_files.bounded_text import checksum_of
from cotide_lab.predictor_lab.cells import LabCell, LabSource, Task
from cotide_lab.predictor_lab.registry import digests_of_weights, names_of
from cotide_lab.predictor_lab.user_predictor import read_predictor
from cotide_lab.trace_replay.user_policy import PolicySource, is_policy_file

LabTask = tuple[LabCell, LabSource, PolicySource | None]


def source_of(
    path: Path | None,
    *,
    hosts: int | None = None,
    limit: int | None = None,
    decide: bool = False,
    steps: int | None = None,
    weights: Mapping[str, Path] | None = None,
) -> LabSource:
    """Describe a data set: a file, or without one a generator.

    Parameters
    ----------
    hosts, limit, decide, steps : as in `LabSource`. weights : folders of pretrained models by name.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    folders = tuple(sorted((weights or {}).items()))
    if path is None:
        return LabSource("generated", "generated", None, hosts, limit, decide, steps, folders)
    try:
        digest = checksum_of(path)
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=str(path), field="--data") from error
    return LabSource(path.name, digest, path.resolve(), hosts, limit, decide, steps, folders)


def cells_of(
    task: Task, sources: Sequence[LabSource], predictors: Sequence[str], seeds: Sequence[int]
) -> list[LabTask]:
    """Return every cell with its input.

    Parameters
    ----------
    predictors : names of the task, ``all`` of those without missing weights, or files like ``./my_predictor.py:NAME``.

    Raises
    ------
    InputError
        At an unknown name, an unreadable file, and two data sets or predictors of one name.
    """
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is given twice; a name belongs to one data set in the results", field="--data")
    known, weights = names_of(task), digests_of_weights(task, sources)
    chosen: dict[str, PolicySource | None] = {}
    for given in predictors:
        if given == "all":
            chosen |= dict.fromkeys(name for name in known if weights.get(name, "") is not None)
        elif is_policy_file(given):
            file = read_predictor(given)
            if file.name in known:
                raise InputError(
                    f"{file.name} is the name of a built-in predictor; rename the file", field="--predictor"
                )
            chosen[file.name] = file
        elif given in known:
            chosen[given] = None
        else:
            raise InputError(f"there is no {given!r} for {task}; there are {', '.join(known)}", field="--predictor")
    return [
        (_cell(task, source, name, weights.get(name) if file is None else file.sha256, seed), source, file)
        for source in sources
        for name, file in chosen.items()
        for seed in seeds
    ]


def _cell(task: Task, source: LabSource, name: str, digest: str | None, seed: int) -> LabCell:
    hosts = "all" if source.hosts is None else f"{source.hosts}"
    limit = "all" if source.limit is None else f"first {source.limit}"
    decided = "; decided" if source.decide else ""
    trained = "" if source.steps is None else f"; training steps: {source.steps}"
    taken = f"jobs: {limit}{decided}" if task == "run-time" else f"series: {hosts}; slots: {limit}{trained}"
    return LabCell(task, source.name, source.sha256, taken, name, seed, digest)

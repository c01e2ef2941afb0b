"""Figures of an experiment's parts in a journal: each is on the disk before the next part begins.

Called by experiments' commands that run for hours. Durability is `journal_file`'s. Invariant: what
was found is never found again, and never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cotide_lab.sweeps.journal_file import JournalFile


class KeptFigures(MutableMapping[tuple[Any, ...], dict[str, Any]]):
    """Figures by their keys.

    Parameters
    ----------
    kind : the experiment, as required in the head of the file.
    names : of a key's parts, in the records.
    of : what all runs have in common; a run under other circumstances is another run.

    Attributes
    ----------
    remarks : a sentence for each broken line that was found.

    Raises
    ------
    InputError
        As `JournalFile` does.
    """

    def __init__(self, path: Path, kind: str, names: Sequence[str], of: dict[str, Any]) -> None:
        self._file = JournalFile(path, kind)
        self._names, self._of = names, of
        self.remarks = self._file.remarks
        own = [record for record in self._file.records if record["of"] == of]
        self._found: dict[tuple[Any, ...], dict[str, Any]] = {
            tuple(item[name] for name in names): item["figures"] for item in own
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.__exit__(kind, error, at)

    def __getitem__(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return self._found[key]

    def __setitem__(self, key: tuple[Any, ...], figures: dict[str, Any]) -> None:
        self._file.append({"of": self._of, **dict(zip(self._names, key, strict=True)), "figures": figures})
        self._found[key] = figures

    def __delitem__(self, key: tuple[Any, ...]) -> None:
        raise TypeError(f"{key} was measured, and stays")

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

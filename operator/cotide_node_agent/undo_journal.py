"""Writes to control groups, each of which can be undone, after a SIGKILL as well.

What a file said before it was first changed is in the journal, on disk, before the change is made::

    change(file, text):  file's text -> journal file (renamed into place) -> write -> what the kernel made of it is kept
    next start, or end:  each file of the journal gets its text back, parents first

Whoever else writes into the file meanwhile (a kubelet that resizes a pod) is noticed at the next change: its text is
what is put back from then on. Invariant: at any moment, files that differ from what their owner wrote are in the
journal on disk. Called by `agent` alone; two agents with one journal would undo each other.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Final

from cotide_core.errors import InputError

_LOG = logging.getLogger(__name__)

FORMAT: Final = 1


class UndoJournal:
    """The changes that stand, and how to take them back.

    Parameters
    ----------
    file : Path
        Where it is kept; its folder must outlive the agent's container.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before: dict[str, str] = {}
        self._written: dict[str, tuple[str, str]] = {}
        """What we wrote last, and what the kernel showed then; empty for what an agent before us wrote."""

    def __len__(self) -> int:
        return len(self._before)

    def load(self) -> int:
        """Read what an agent before us left and return how many files it had changed.

        Raises
        ------
        InputError
            When the journal is none of ours: then nobody knows what to put back.
        """
        try:
            content = self._file.read_bytes()
        except FileNotFoundError:
            return 0
        try:
            found = json.loads(content)
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}")
            self._before = {str(path): str(said) for path, said in found["before"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self._file} is no journal of changed control groups: {error}") from error
        return len(self._before)

    def before(self, file: Path) -> str | None:
        """Return what a file said before it was changed, or what another wrote since; None where it was not changed."""
        path = str(file)
        known = self._before.get(path)
        if known is None or path not in self._written:
            return known
        try:
            said = file.read_text(encoding="ascii").strip()
        except OSError:  # the pod ended meanwhile
            return known
        return known if said == self._written[path][1] else said

    def stands(self, file: Path, text: str) -> bool:
        """Whether a file says yet what was asked for, or what the kernel made of it; True for one that is gone."""
        try:
            said = file.read_text(encoding="ascii").strip()
        except OSError:
            return True
        return said in (text, self._written.get(str(file), ("", text))[1])

    def change(self, file: Path, text: str) -> bool:
        """Write a file unless it says so already; whether it is there and took it.

        Raises
        ------
        OSError
            When the journal itself can't be written: then the file is left as it is.
        """
        path = str(file)
        try:
            said = file.read_text(encoding="ascii").strip()
        except FileNotFoundError:  # the pod ended meanwhile
            self.forget(file)
            return False
        except OSError as error:
            _LOG.debug("%s can't be read: %s", file, error)
            return False
        asked, shown = self._written.get(path, ("", said))
        if said == shown and text in (asked, said):
            return True
        if path not in self._before or said != shown:
            self._note(path, said)
        try:
            file.write_text(text, encoding="ascii")
            self._written[path] = text, file.read_text(encoding="ascii").strip()
        except FileNotFoundError:  # the pod ended meanwhile
            self.forget(file)
            return False
        except OSError as error:
            _LOG.debug("%s does not take %s: %s", file, text, error)
            return False
        return True

    def _note(self, path: str, said: str) -> None:
        """Bring to the disk what a file says, or remember nothing of it: what is not there must not be changed."""
        before = dict(self._before)
        self._before[path] = said
        try:
            self._save()
        except OSError:
            self._before = before
            raise

    def undo(self) -> int:
        """Put back what was there before, of all files, and return how many there were."""
        return self._undo(list(self._before))

    def undo_of(self, group: str) -> int:
        """The same of one group and those below it, in each hierarchy."""
        return self._undo(self._of(group))

    def forget_of(self, group: str) -> None:
        """Leave out a group that is gone."""
        for path in self._of(group):
            self.forget(Path(path))

    def _of(self, group: str) -> list[str]:
        return [path for path in self._before if f"/{group}/" in path]

    def _undo(self, paths: list[str]) -> int:
        back = 0
        # A group below may have no more than the one above: that one first.
        for path in sorted(paths, key=lambda path: path.count("/")):
            try:
                self._put_back(Path(path))
                back += 1
            except FileNotFoundError:
                pass  # gone, and what it said with it
            except OSError as error:  # it stays in the journal, for the next undo or the next agent
                _LOG.warning("%s could not be set back to %s: %s", path, self._before[path], error)
                continue
            self.forget(Path(path))
        if paths:
            self._save_what_is_left()
        return back

    def _save_what_is_left(self) -> None:
        """Write the journal after an undo, which must not fail for it: what the disk says too much is undone twice."""
        try:
            if self._before:
                self._save()
            else:  # works on a full disk, too
                self._file.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("%s can't be written, and says more than is left to put back: %s", self._file, error)

    def _put_back(self, file: Path) -> None:
        said = file.read_text(encoding="ascii").strip()
        if said == self._written.get(str(file), ("", said))[1]:  # else it is another's by now
            file.write_text(self._before[str(file)], encoding="ascii")

    def forget(self, file: Path) -> None:
        """Leave out a file that is gone."""
        self._before.pop(str(file), None)
        self._written.pop(str(file), None)

    def _save(self) -> None:
        """Replace the journal in one step: a process that is killed leaves the old one or the new one."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        with new.open("w", encoding="utf-8") as sink:
            json.dump({"format": FORMAT, "before": self._before}, sink)
            sink.flush()
            os.fsync(sink.fileno())
        new.replace(self._file)

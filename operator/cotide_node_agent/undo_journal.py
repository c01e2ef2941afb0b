"""Writes to control groups so that each change can be undone, even after a SIGKILL.

The text of a file before its first change is in the journal, on disk, before the change::

    change(file, text):  file's text -> journal file (renamed into place) -> write -> what the kernel made of it is kept
    next start, or end:  each file of the journal gets its text back, parents first

Another writer of the file (a kubelet that resizes a pod) is noticed at the next change. From then on its text is the
one to restore. Invariant: at any moment, every file that differs from its owner's text is in the journal on disk.
Called by `agent` alone; two agents with one journal would undo each other.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final

from cotide_core.errors import InputError
from cotide_files.replacement import replace_file

_LOG = logging.getLogger(__name__)

FORMAT: Final = 1


class UndoJournal:
    """The changes in force, and how to undo them.

    Parameters
    ----------
    file : Path
        Its path; the folder must outlive the agent's container.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before: dict[str, str] = {}
        self._written: dict[str, tuple[str, str]] = {}
        """Our last text, and the text that the kernel showed then. Empty for a change by a former agent."""

    def __len__(self) -> int:
        return len(self._before)

    def load(self) -> int:
        """Read what a former agent left and return how many files it had changed.

        Raises
        ------
        InputError
            When the journal is not ours: then the texts to restore are unknown.
        """
        try:
            content = self._file.read_bytes()
        except FileNotFoundError:
            return 0
        try:
            found = json.loads(content)
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}")
            self._before = {str(path): str(text) for path, text in found["before"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self._file} is no journal of changed control groups: {error}") from error
        return len(self._before)

    def before(self, file: Path) -> str | None:
        """Return the text of a file before our change, or another writer's text since; None for an unchanged file."""
        path = str(file)
        known = self._before.get(path)
        if known is None or path not in self._written:
            return known
        try:
            current = file.read_text(encoding="ascii").strip()
        except OSError:  # The pod ended meanwhile.
            return known
        return known if current == self._written[path][1] else current

    def stands(self, file: Path, text: str) -> bool:
        """Whether a file still has the requested text, or what the kernel made of it; True for one that is gone."""
        try:
            current = file.read_text(encoding="ascii").strip()
        except OSError:
            return True
        return current in (text, self._written.get(str(file), ("", text))[1])

    def change(self, file: Path, text: str) -> bool:
        """Write a file unless it already has the text; whether the file exists and accepted it.

        Raises
        ------
        OSError
            When the journal itself can't be written: then the file stays as it is.
        """
        path = str(file)
        try:
            current = file.read_text(encoding="ascii").strip()
        except FileNotFoundError:  # The pod ended meanwhile.
            self.forget(file)
            return False
        except OSError as error:
            _LOG.debug("%s can't be read: %s", file, error)
            return False
        asked, shown = self._written.get(path, ("", current))
        if current == shown and text in (asked, current):
            return True
        if path not in self._before or current != shown:
            self._note(path, current)
        try:
            file.write_text(text, encoding="ascii")
            self._written[path] = text, file.read_text(encoding="ascii").strip()
        except FileNotFoundError:  # The pod ended meanwhile.
            self.forget(file)
            return False
        except OSError as error:
            _LOG.debug("%s does not accept %s: %s", file, text, error)
            return False
        return True

    def _note(self, path: str, current: str) -> None:
        """Save the text of a file to the disk, or drop it from the journal: only saved files may be changed."""
        before = dict(self._before)
        self._before[path] = current
        try:
            self._save()
        except OSError:
            self._before = before
            raise

    def undo(self) -> int:
        """Restore the former text of all files, and return how many there were."""
        return self._undo(list(self._before))

    def undo_of(self, group: str) -> int:
        """Undo the changes of one group and those below it, in each hierarchy."""
        return self._undo(self._of(group))

    def forget_of(self, group: str) -> None:
        """Leave out a group that is gone."""
        for path in self._of(group):
            self.forget(Path(path))

    def _of(self, group: str) -> list[str]:
        return [path for path in self._before if f"/{group}/" in path]

    def _undo(self, paths: list[str]) -> int:
        back = 0
        # A group below may have no more than the one above: restore the one above first.
        for path in sorted(paths, key=lambda path: path.count("/")):
            try:
                self._put_back(Path(path))
                back += 1
            except FileNotFoundError:
                pass  # Gone, and its text with it.
            except OSError as error:  # It stays in the journal, for the next undo or the next agent.
                _LOG.warning("%s could not be restored to %s: %s", path, self._before[path], error)
                continue
            self.forget(Path(path))
        if paths:
            self._save_what_is_left()
        return back

    def _save_what_is_left(self) -> None:
        """Write the journal after an undo, which must succeed even if this fails: a surplus entry is undone twice."""
        try:
            if self._before:
                self._save()
            else:  # Works on a full disk, too.
                self._file.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("%s can't be written, and lists more than is left to restore: %s", self._file, error)

    def _put_back(self, file: Path) -> None:
        current = file.read_text(encoding="ascii").strip()
        if current == self._written.get(str(file), ("", current))[1]:  # Otherwise it belongs to another writer by now.
            file.write_text(self._before[str(file)], encoding="ascii")

    def forget(self, file: Path) -> None:
        """Leave out a file that is gone."""
        self._before.pop(str(file), None)
        self._written.pop(str(file), None)

    def _save(self) -> None:
        """Replace the journal in one step. A process that is killed leaves the old one or the new one."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._file, json.dumps({"format": FORMAT, "before": self._before}).encode(), durable=True)

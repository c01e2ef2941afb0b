"""Files that are replaced whole: a reader finds the old content or the new one, never a part of it.

Called by all that keep a file up to date: journals, results, models, credentials. Invariant: after a failure the old
content is there, and nothing is next to it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

READ_BY_ALL: Final = 0o666
"""Before the process's own mask, as `open` creates files."""


def replace_file(path: Path, content: bytes, *, durable: bool = False, mode: int = READ_BY_ALL) -> None:
    """Write a file in one step, by a rename in its folder.

    Parameters
    ----------
    durable : whether the content is on disk before the rename, which holds after a power failure, too.
    mode : permissions of the file, before the process's own mask.

    Raises
    ------
    OSError
        When it can't be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")  # its own: two processes may write the same file at once
    try:
        aside.unlink(missing_ok=True)  # of a killed process with this number, with other permissions perhaps
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise

"""Ends this process when the one that started it is gone, however that ended: SIGKILL runs no clean-up of its own.

Used by the commands that the demo starts (see `demo.processes`), which hand them the reading end of a pipe that nobody
writes to. The pipe closes when its last writer has gone, which is the parent: also when that died before we looked, on
every Unix, and whichever of its threads started us (Linux's PR_SET_PDEATHSIG looks at the thread). Invariant: without
that pipe nothing happens.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

PIPE_VARIABLE: Final = "COTIDE_PARENT_PIPE"
"""Number of the descriptor to watch; set by whoever starts us."""
GRACE_SECONDS: Final = 5.0
"""Wall seconds between SIGTERM and SIGKILL to ourselves; chosen: nobody waits for us any more."""


def watch_parent() -> threading.Thread | None:
    """Watch the parent, where it asks for it; return the thread that does."""
    number = os.environ.pop(PIPE_VARIABLE, "")  # our own children are not the parent's
    if not number.isdecimal() or len(number) > 9:
        return None
    descriptor = int(number)
    try:
        os.set_inheritable(descriptor, False)
    except OSError:  # no such descriptor: whoever set the variable is long gone, or wrote nonsense
        return None
    thread = threading.Thread(target=_end_with, args=(descriptor,), name="parent watch", daemon=True)
    thread.start()
    return thread


def _end_with(descriptor: int) -> None:
    while os.read(descriptor, 1):  # nobody writes; the end of the file is the end of the parent
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)

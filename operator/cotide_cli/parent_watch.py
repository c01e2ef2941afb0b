"""Ends this process when its parent is gone, for any reason: after SIGKILL the parent runs no clean-up.

Used by the commands that the demo starts (see `demo.processes`). They get the reading end of a pipe without any data.
The pipe closes when its last writer, the parent, is gone. This works on every Unix, also when the parent died before
the first look, and for any of its threads as the starter (Linux's PR_SET_PDEATHSIG follows the thread). Invariant:
without that pipe nothing happens.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

PIPE_VARIABLE: Final = "COTIDE_PARENT_PIPE"
"""Number of the descriptor to watch; set by the parent."""
GRACE_SECONDS: Final = 5.0
"""Wall seconds between SIGTERM and SIGKILL to this process; chosen: no process waits for it any longer."""


def watch_parent() -> threading.Thread | None:
    """Watch the parent if it requests that; return the watching thread."""
    number = os.environ.pop(PIPE_VARIABLE, "")  # children of this process do not watch the parent
    if not number.isdecimal() or len(number) > 9:
        return None
    descriptor = int(number)
    try:
        os.set_inheritable(descriptor, False)
    except OSError:  # no such descriptor: the process that set the variable is gone, or the value is wrong
        return None
    thread = threading.Thread(target=_end_with, args=(descriptor,), name="parent watch", daemon=True)
    thread.start()
    return thread


def _end_with(descriptor: int) -> None:
    while os.read(descriptor, 1):  # no data comes; the end of the file is the end of the parent
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)

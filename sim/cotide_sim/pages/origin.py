"""Origin of a page: the command as typed, the version of Cotide, and the date.

Called by the commands that write a page.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from cotide_sim.pages.page import Made


def made() -> Made:
    """Return the origin of a page: the command as typed, the version, and the date.

    The date is ``SOURCE_DATE_EPOCH`` if that is set (reproducible-builds.org), so that a page can be made again.
    """
    seconds = float(os.environ.get("SOURCE_DATE_EPOCH", "") or time.time())
    command = shlex.join([Path(sys.argv[0]).name.replace("__main__.py", "cotide"), *sys.argv[1:]])
    return Made(command, version("cotide"), f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC")

"""The seed of the random calls that both servers are sent: a new one each time, or the one that is to be repeated.

Read by the conformance tests; the end of a run says what it was.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

REPEATED: Final = os.environ.get("COTIDE_CONFORMANCE_SEED", "")
SEED: Final = int(REPEATED or secrets.randbelow(2**32))

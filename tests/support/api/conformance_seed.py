"""The seed of the random calls that both servers are sent: the same for a change, a new one at night.

`COTIDE_CONFORMANCE_SEED=new` draws one, as `make nightly` does, and a number repeats that one and shrinks what differs.
The end of a run says what it was.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

_SAME: Final = 20
"""Chosen: any would do."""
_GIVEN: Final = os.environ.get("COTIDE_CONFORMANCE_SEED", "")
REPEATED: Final = _GIVEN.isdecimal()
SEED: Final = secrets.randbelow(2**32) if _GIVEN == "new" else int(_GIVEN or _SAME)

"""Where the tests find the repository and the real traces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The repository."""
DATA: Final = Path(os.environ.get("COTIDE_DATA") or ROOT.parent / "shared" / "data")
"""The real traces; tests that need them are skipped where they are absent."""

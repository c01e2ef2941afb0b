"""Strategic merge patch."""

from __future__ import annotations

from typing import Any

from cotide_sim.apiserver.merge_patch import merge_patch


def strategic_patch(target: Any, patch: Any) -> Any:
    """Return the patched."""
    return merge_patch(target, patch)

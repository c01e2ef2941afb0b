"""JSON merge patch.

Called by `writing` for `application/merge-patch+json`. Pure; changes its target in place. Law: the result is that
of RFC 7386, section 2.
"""

from __future__ import annotations

from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target with the patch applied; objects merge, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = merge_patch(target.get(key), value)
        else:
            target[key] = value
    return target

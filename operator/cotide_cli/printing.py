"""Data as JSON or YAML text: what every command prints for ``-o json`` and ``-o yaml``.

Called by the commands that print data. Invariant: both forms hold the same document.
"""

from __future__ import annotations

import json
from typing import Any

import yaml


def as_text(data: Any, output: str, *, indent: int | None = None) -> str:
    """Return a document as JSON, or as YAML when `output` is ``yaml``; without a line break at the end."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    if output != "yaml":
        return text
    # By way of JSON: tuples become lists and string-like enumerations plain text, so that no Python tag appears.
    return yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip("\n")

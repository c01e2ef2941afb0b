"""`OutcomeFile`: what was done to nodes, and what came of what was predicted, as JSON lines beside the ledger.

Written by `controller` (``consolidation.jsonl``), and by that of provisioning (``provisioning.jsonl``). It is appended
to by one operator after the other, and no part of the ledger's chain, since the engine has no part in it and a replay
does not make it anew. Invariant: never raises; what the disk does not take is counted as a lost line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cotide_operator.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)
NAME: Final = "consolidation.jsonl"
PROVISIONING: Final = "provisioning.jsonl"


class OutcomeFile:
    """Lines in a directory; without one they are dropped."""

    def __init__(self, directory: Path | None, telemetry: Metrics, name: str = NAME) -> None:
        self._path = None if directory is None else directory / name
        self._telemetry = telemetry

    def note(self, line: Mapping[str, Any]) -> None:
        """Append one line."""
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        except OSError as error:
            self._telemetry.ledger_lost.inc()
            _LOG.debug("%s takes nothing: %s", self._path, error)

"""The phase of a pod of a Job with phases, with its start and end, from the pod's annotations.

`explanation` calls it. Invariant: a pod without phases has no facts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cotide_core.units import CPU, MEMORY, format_amount, format_seconds
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.apis.names import (
    GRANTED_PHASE_ANNOTATION,
    LEARNED_PHASES_ANNOTATION,
    PHASE_ANNOTATION,
    PHASE_ENDS_ANNOTATION,
    PHASE_NOTE_ANNOTATION,
    PHASE_SINCE_ANNOTATION,
)


def phase_facts(pod: Mapping[str, Any], now_seconds: float) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Return the facts about a pod's phase, in words and for programs.

    Parameters
    ----------
    now_seconds : epoch second of the wall.
    """
    notes = pod["metadata"].get("annotations") or {}
    granted, stated = notes.get(GRANTED_PHASE_ANNOTATION), notes.get(PHASE_ANNOTATION)
    learned = learned_facts(notes.get(LEARNED_PHASES_ANNOTATION))
    if not granted and not stated:
        return learned, {}
    since, ends, note = (
        notes.get(name) for name in (PHASE_SINCE_ANNOTATION, PHASE_ENDS_ANNOTATION, PHASE_NOTE_ANNOTATION)
    )
    words = str(granted or "none granted yet")
    if granted and since:
        words += f", since {format_seconds(now_seconds - parse_timestamp(since))}"
    if granted and ends:
        left = parse_timestamp(ends) - now_seconds
        words += f", {format_seconds(left)} left" if left >= 0 else f", {format_seconds(-left)} longer than expected"
    if stated and stated != granted:
        words += f"; it requests {stated}, and waits for that size"
    if note:
        words += f" ({note})"
    data = {"granted": granted, "said": stated, "since": since, "ends": ends, "note": note}
    return [("Phase of work", words), *learned], {key: value for key, value in data.items() if value is not None}


def learned_facts(text: str | None) -> list[tuple[str, str]]:
    """Return the phases of a pod that were learned from earlier runs of its type, in words."""
    if not text:
        return []
    parts = [
        f"{format_amount(CPU, load['millicores'])} and {format_amount(MEMORY, load['memoryBytes'])}"
        f" for {format_seconds(load['seconds'])}"
        for load in json.loads(text)
    ]
    return [("Phases", f"learned from earlier runs of its type: {', then '.join(parts)}")]

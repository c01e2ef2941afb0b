"""Operators of the version before and of one to come, as far as replicas share anything: two versions side by side.

Used inside the operator's process (`operator_child`) for plans that ask for it. What replicas share is the Lease, the
notes on pods, and the directory of what was learned; all else each lists for itself. The older one writes what the
version before wrote (by its code, of the commits named), the newer one what no version knows yet.

older   the Lease's annotation of nodes that refused pods is neither read nor written, and so stays as it is (before
        063c704); what was learned has a manifest of schema version 1 (before 2 came; both are read)
newer   that annotation's entries have one field more; the Lease has an annotation and a field of its own; notes have
        version 2 and a word more; what was learned has a manifest of schema version 3
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, Final

SKEWS: Final = ("older", "newer")
TOMORROW: Final = 3
"""Version of the files that the newer one writes; ours and the older can't read them."""


def install(skew: str) -> None:
    """Make this process one of another version."""
    {"older": _older, "newer": _newer}[skew]()


def _older() -> None:
    from cotide_operator.leaderelection import lease

    body = lease.LeaderElector._body

    def without(self: Any, stored: Any, *rest: Any, **more: Any) -> Any:
        found = body(self, stored, *rest, **more)
        there = (stored.whole.get("metadata") or {}).get("annotations") or {} if stored is not None else {}
        annotations = {**found["metadata"].pop("annotations", {})}
        annotations.pop(lease.NODE_BACKOFFS_ANNOTATION, None)
        if lease.NODE_BACKOFFS_ANNOTATION in there:
            annotations[lease.NODE_BACKOFFS_ANNOTATION] = there[lease.NODE_BACKOFFS_ANNOTATION]
        if annotations:
            found["metadata"]["annotations"] = annotations
        return found

    lease.LeaderElector._body = without  # type: ignore[method-assign]  # another version
    _files_of(1)


def _newer() -> None:
    from cotide_operator.leaderelection import lease

    body = lease.LeaderElector._body

    def with_more(self: Any, *stored: Any, **more: Any) -> Any:
        found = body(self, *stored, **more)
        annotations = {**found["metadata"].get("annotations", {}), "cotide.dev/of-tomorrow": "{"}
        entries = json.loads(annotations.get(lease.NODE_BACKOFFS_ANNOTATION, "[]"))
        entries.append({"node": "nowhere", "reason": "of tomorrow", "until": 4e9, "severity": {"of": 3}})
        annotations[lease.NODE_BACKOFFS_ANNOTATION] = json.dumps(entries)
        found["metadata"]["annotations"] = annotations
        found["spec"]["strategy"] = "OldestEmulationVersion"
        return found

    lease.LeaderElector._body = with_more  # type: ignore[method-assign]  # another version
    _notes_of_tomorrow()
    _files_of(TOMORROW)


def _notes_of_tomorrow() -> None:
    from cotide_operator.reporting import pod_annotator
    from cotide_operator.scheduling import binder
    from cotide_operator.translation import decision_annotation

    encode = decision_annotation.encode

    def encoded(decision: Any) -> str:
        note = json.loads(encode(decision))
        return json.dumps({**note, "v": 2, "why": {"of": ["tomorrow"]}})

    for module in (decision_annotation, pod_annotator, binder):
        for name, value in vars(module).items():
            if value is encode:
                setattr(module, name, encoded)


def _files_of(version: int) -> None:
    from cotide_predictors.persistence import model_files

    model_files.SCHEMA_VERSION = version  # type: ignore[misc]  # another version
    if version not in model_files.READABLE:
        model_files.READABLE = (*model_files.READABLE, version)  # type: ignore[misc, assignment]  # likewise


Mutant = Callable[[], None]


def refuses_other_versions() -> None:
    """Whatever another version left on the lease or in the store must be of ours."""
    from cotide_operator.leaderelection import node_backoffs

    read = node_backoffs.read

    @functools.wraps(read)
    def strictly(text: str, *rest: Any) -> Any:
        found = read(text, *rest)
        if text and not found:
            raise ValueError("the lease tells what this version does not know")
        return found

    node_backoffs.read = strictly

"""Label selectors of our Workloads and of disruption budgets, evaluated on a pod's labels.

`object_cache` calls it for each pod and Workload of a namespace. Invariant: an empty selector selects nothing here, so
that a Workload without its selector never adopts a whole namespace.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cotide_core.events import Requirement, Selector
from cotide_core.state.selection.selectors import selects as core_selects
from cotide_kube.objects import LabelSelector


def read_selector(spec: Mapping[str, Any]) -> LabelSelector | None:
    """Return the ``spec.selector`` of a Workload, or None without a readable one."""
    raw = spec.get("selector")
    if not raw:
        return None
    try:
        return msgspec.convert(raw, LabelSelector)
    except msgspec.ValidationError:  # the server's schema refuses it; a server without the schema must not stop us
        return None


def label_selector(selector: LabelSelector | None) -> Selector | None:
    """Return a label selector as requirements that hold together; None, which selects nothing, for none."""
    if selector is None:
        return None
    pairs = tuple(Requirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items()))
    return pairs + tuple(
        Requirement(expression.key, expression.operator, tuple(expression.values))
        for expression in selector.match_expressions
    )


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether all requirements of a selector hold for these labels; an empty selector selects nothing."""
    requirements = label_selector(selector)
    return bool(requirements) and core_selects(requirements, labels)

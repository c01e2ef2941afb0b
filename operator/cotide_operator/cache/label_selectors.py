"""Label selectors of our Workloads and of disruption budgets, evaluated on a pod's labels.

Called by `object_cache` for each pod and Workload of a namespace. Invariant: an empty selector selects nothing here,
so that a Workload that forgot its selector never adopts a whole namespace.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cotide_kube.objects import LabelSelector, MatchExpression


def read_selector(spec: Mapping[str, Any]) -> LabelSelector | None:
    """Return the ``spec.selector`` of a Workload, or None when there is none that can be read."""
    raw = spec.get("selector")
    if not raw:
        return None
    try:
        return msgspec.convert(raw, LabelSelector)
    except msgspec.ValidationError:  # the schema refuses it at the server; a server without it must not stop us
        return None


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether all requirements of a selector hold for these labels; an empty selector selects nothing."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_holds(expression, labels) for expression in selector.match_expressions)


def _holds(expression: MatchExpression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    if expression.operator == "In":
        return value is not None and value in expression.values
    if expression.operator == "NotIn":
        return value is None or value not in expression.values
    if expression.operator == "Exists":
        return value is not None
    if expression.operator == "DoesNotExist":
        return value is None
    return False

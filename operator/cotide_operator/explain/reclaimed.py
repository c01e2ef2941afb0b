"""A pod's requests of reclaimed capacity, and the offered and used amounts of one node: facts of an explanation.

`explain` calls it for pods with such requests. The node is the pod's own or, while it waits, one that was refused for
want of slack. Pure. Invariant: unread facts are left out: a reader may see nodes and not the pods on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cotide_core.errors import InputError
from cotide_core.state.reclaimed import Amounts
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY, format_amount
from cotide_kube.objects import NodeObject, PodObject
from cotide_operator.reclaimed.node_status import ANNOTATION, CONDITION, shown
from cotide_operator.translation.pod_requests import effective_requests

Object = Mapping[str, Any]
Facts = list[tuple[str, str]]

_ENDED: Final = frozenset({"Succeeded", "Failed"})


def reclaimed_requests(pod: Object) -> Amounts:
    """Return the reclaimed millicores and bytes that a pod requests; zeros if they are unreadable."""
    try:
        asked = dict(effective_requests(msgspec.convert(pod, PodObject).spec).amounts)
    except (InputError, msgspec.ValidationError):
        return 0, 0
    return asked.get(RECLAIMED_CPU, 0), asked.get(RECLAIMED_MEMORY, 0)


def reclaimed_facts(
    pod: Object, node: Object | None, neighbours: Sequence[Object] | None
) -> tuple[Facts, dict[str, Any]]:
    """Return the facts in words and for programs; empty for a pod without such requests.

    Parameters
    ----------
    pod : the pod that is explained.
    node : a Node; None if none is known or may be read.
    neighbours : all pods on that node; None if they may not be read.
    """
    asked = reclaimed_requests(pod)
    if not any(asked):
        return [], {}
    facts: Facts = [("Asks for", f"{_words(asked)} of reclaimed capacity")]
    data: dict[str, Any] = {"asked": _data(asked)}
    if node is None:
        return facts, data
    name, reclaimed = node["metadata"]["name"], shown(msgspec.convert(node, NodeObject))
    cpu, memory = reclaimed.allocatable
    if cpu is None and memory is None:
        facts.append(("Offered", f"{name} offers no reclaimed capacity (yet): see docs/features/reclaimed-capacity.md"))
        data["node"] = {"name": name, "offered": None}
        return facts, data
    offered = cpu or 0, memory or 0
    words, node_data = f"{name} offers {_words(offered)}", {"name": name, "offered": _data(offered)}
    if neighbours is not None:
        running = [neighbour for neighbour in neighbours if (neighbour.get("status") or {}).get("phase") not in _ENDED]
        amounts = [reclaimed_requests(neighbour) for neighbour in running]
        in_use = sum(amount[0] for amount in amounts), sum(amount[1] for amount in amounts)
        words += f"; its pods request {_words(in_use)} of it"
        node_data["inUse"] = _data(in_use)
    facts.append(("Offered", words))
    facts += _trust(node)
    note = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    if note:
        facts.append(("Forecast", note))
    node_data |= {"forecastTrusted": reclaimed.trusted, "reason": reclaimed.reason, "forecast": note}
    data["node"] = node_data
    return facts, data


def _trust(node: Object) -> Facts:
    conditions = (node.get("status") or {}).get("conditions") or ()
    condition = next((candidate for candidate in conditions if candidate.get("type") == CONDITION), None)
    if condition is None:
        return []
    trusted = "trusted" if condition.get("status") == "True" else "not trusted: requests count instead"
    return [("Trust", f"{trusted} ({condition.get('reason', '')}): {condition.get('message', '')}")]


def _words(amounts: Amounts) -> str:
    parts = [f"{amounts[0]}m cpu"] if amounts[0] else []
    parts += [f"{format_amount(MEMORY, amounts[1])} memory"] if amounts[1] else []
    return " and ".join(parts) or "nothing"


def _data(amounts: Amounts) -> dict[str, str]:
    return {CPU: f"{amounts[0]}m", MEMORY: format_amount(MEMORY, amounts[1])}

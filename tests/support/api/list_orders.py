"""In which order a strategic merge patch leaves a list: what is sent, and what comes of it on a real server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class ListOrder:
    """One object and one patch.

    Attributes
    ----------
    where : the path of the list in the object.
    key : what its items are known by; empty for plain values.
    after : what they are known by in the end, in order.
    """

    kind: str
    before: dict[str, Any]
    patch: dict[str, Any]
    where: tuple[str, ...]
    key: str
    after: list[Any]

    def found(self, obj: dict[str, Any]) -> list[Any]:
        """Return what the items of an object are known by."""
        at: Any = obj
        for field in self.where:
            at = at.get(field) or {}
        return [item[self.key] if self.key else item for item in at]


def _finalizers(before: str, after: str, **patch: list[str]) -> ListOrder:
    """Each letter is a finalizer; ``finalizers``, ``order`` and ``drop`` are of the patch."""
    names = {
        "finalizers": "finalizers",
        "order": "$setElementOrder/finalizers",
        "drop": "$deleteFromPrimitiveList/finalizers",
    }
    sent = {names[part]: [f"example.org/{letter}" for letter in letters] for part, letters in patch.items()}
    metadata = {"metadata": {"finalizers": [f"example.org/{one}" for one in before]}}
    at = ("metadata", "finalizers")
    return ListOrder("configmaps", metadata, {"metadata": sent}, at, "", [f"example.org/{one}" for one in after])


def _ports(before: list[int], after: list[int], items: list[dict[str, Any]], **more: Any) -> ListOrder:
    def port(number: int) -> dict[str, Any]:
        return {"name": f"p{number}", "port": number}

    patch = {"ports": [item if "$patch" in item else port(item["port"]) for item in items], **more}
    spec = {"spec": {"type": "ClusterIP", "clusterIP": "None", "ports": [port(one) for one in before]}}
    return ListOrder("services", spec, {"spec": patch}, ("spec", "ports"), "port", after)


ORDERS: Final = {
    "what is new comes first": _finalizers("ab", "cab", finalizers=["c"]),
    "what is new comes where the patch has it": _finalizers("ab", "cab", finalizers=["c", "a"]),
    "new ones keep their order": _finalizers("a", "dca", finalizers=["d", "c"]),
    "the patch turns the order of what it names": _finalizers("abc", "bca", finalizers=["c", "a"]),
    "who stood before what is named stays before": _finalizers("abc", "abdc", finalizers=["b", "d"]),
    "what the patch has twice is there once": _finalizers("ab", "ab", finalizers=["b", "b"]),
    "an order without items": _finalizers("abc", "bca", order=["c", "a"]),
    "an order with items": _finalizers("ab", "adb", finalizers=["d"], order=["a", "d"]),
    "what goes, goes": _finalizers("abc", "ac", drop=["b"]),
    "what goes where nothing is": _finalizers("", "", drop=["b"]),
    "a new port comes first": _ports([1, 2], [3, 1, 2], [{"port": 3}]),
    "a named port draws who stood before it": _ports([1, 2, 3], [1, 2, 4, 3], [{"port": 2}, {"port": 4}]),
    "a port goes, another comes": _ports([1, 2], [3, 2], [{"port": 1, "$patch": "delete"}, {"port": 3}]),
    "ports in an order": _ports([1, 2], [2, 3, 1], [{"port": 3}],
                                **{"$setElementOrder/ports": [{"port": 2}, {"port": 3}, {"port": 1}]}),
}  # fmt: skip
"""By what each shows."""

"""Lists as of versions that are past: what is written and asked, and what a real server answers."""

from __future__ import annotations

from typing import Any, Final

from api_calls import Caller

Shown = list[tuple[str, int]]
"""Name, and which of the writes it stands as."""

AS_OF_EACH_WRITE: Final[dict[str, list[Shown]]] = {
    "": [[("a", 0)], [("a", 0), ("b", 1)], [("a", 2), ("b", 1)], [("a", 2), ("b", 1), ("c", 3)], [("a", 2), ("c", 3)]],
    "metadata.name=a": [[("a", 0)], [("a", 0)], [("a", 2)], [("a", 2)], [("a", 2)]],
    "metadata.name=b": [[], [("b", 1)], [("b", 1)], [("b", 1)], []],
}
"""By field selector: after a and b were made, a changed, c made, and b deleted."""


def as_of_each_write(caller: Caller) -> dict[str, list[Shown]]:
    """Make, change and delete objects, and list as of each of these versions."""
    path = f"/api/v1/namespaces/{caller.namespace}/configmaps"
    labels = {"labels": {"exact": "yes"}}

    def write(method: str, name: str, body: Any) -> str:
        where = path if method == "POST" else f"{path}/{name}"
        code, made = caller.send(method, where, body, "application/merge-patch+json" if method == "PATCH" else JSON)
        assert code < 300, made
        return str(made.get("metadata", {}).get("resourceVersion", ""))

    versions = [write("POST", name, {"metadata": {"name": name, **labels}}) for name in "ab"]
    versions.append(write("PATCH", "a", {"data": {"x": "1"}}))
    versions.append(write("POST", "c", {"metadata": {"name": "c", **labels}}))
    write("DELETE", "b", None)
    known = list(versions)
    versions.append(caller.send("GET", f"{path}?limit=1")[1]["metadata"]["resourceVersion"])

    def listed(selector: str, version: str) -> Shown:
        query = f"labelSelector=exact%3Dyes&resourceVersion={version}&resourceVersionMatch=Exact"
        code, found = caller.send("GET", f"{path}?{query}&fieldSelector={selector.replace('=', '%3D')}")
        assert code == 200, found
        assert found["metadata"]["resourceVersion"] == version
        items = [one["metadata"] for one in found["items"]]
        return [(item["name"], known.index(item["resourceVersion"])) for item in items]

    return {selector: [listed(selector, version) for version in versions] for selector in AS_OF_EACH_WRITE}


def of_a_version_to_come(caller: Caller) -> tuple[int, str, str]:
    """Ask for a version that is to come; returns code, reason and message up to the numbers."""
    query = "resourceVersion=100000000&resourceVersionMatch=Exact"
    code, found = caller.send("GET", f"/api/v1/namespaces/{caller.namespace}/configmaps?{query}")
    return code, found["reason"], found["message"].partition(": 1")[0]


TO_COME: Final = (504, "Timeout", "Timeout: Too large resource version")
JSON: Final = "application/json"

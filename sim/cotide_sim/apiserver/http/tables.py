"""Tables: the output of `kubectl get`, made by the server from each kind's columns.

Called by `dispatch` when a client asks for `as=Table`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import orjson

from cotide_sim.apiserver.cluster import Cluster
from cotide_sim.apiserver.http.http_protocol import Request
from cotide_sim.apiserver.registry.columns import AGE, NAME, Age
from cotide_sim.apiserver.registry.resources import Json, Resource, ServedVersion
from cotide_sim.apiserver.storage import deep_json
from cotide_sim.apiserver.storage.watching import Render
from cotide_sim.apiserver.verbs.reading import Page

_GENERIC: Final = (NAME, AGE)


def human_age(seconds: float) -> str:
    """Return a duration as kubectl shows ages: two units where the first is small, one where it is not."""
    whole = int(seconds)
    if whole < 0:
        return "<invalid>" if whole < -1 else "0s"
    if whole < 120:
        return f"{whole}s"
    minutes, second = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes}m{second}s" if second else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, minute = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{minute}m" if minute else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, hour = divmod(hours, 24)
    if days < 8:
        return f"{days}d{hour}h" if hour else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y"


class Tables:
    """Makes tables."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def wanted(self, request: Request) -> str:
        """Return the form of the objects in a table (`Metadata`, `None`, `Object`); empty when no table is requested.

        The first supported alternative of the Accept header decides.
        """
        for part in request.headers.get("accept", "").split(","):
            options = [option.strip() for option in part.split(";")]
            if options[0] not in ("application/json", "*/*", "application/*"):
                continue
            if "as=Table" in options:
                return request.query.get("includeObject") or "Metadata"
            if not any(option.startswith("as=") for option in options):
                return ""
        return ""

    def many(self, resource: Resource, served: ServedVersion, page: Page, include: str) -> bytes:
        """Return the table of a list."""
        metadata: dict[str, Any] = {"resourceVersion": str(page.version)}
        if page.token:
            metadata |= {"continue": page.token, "remainingItemCount": page.remaining}
        return orjson.dumps(self._table(resource, served, [entry.raw for entry in page.entries], include, metadata))

    def one(self, resource: Resource, served: ServedVersion, raw: bytes, include: str) -> bytes:
        """Return the table of one object."""
        return orjson.dumps(self._table(resource, served, [raw], include, {}))

    def renderer(self, resource: Resource, served: ServedVersion, include: str) -> Render:
        """Return a function that turns each watch event's object into a table of one row; only the first has the column
        heads.
        """
        heads = True

        def render(raw: bytes) -> bytes:
            nonlocal heads
            table = self._table(resource, served, [raw], include, {})
            if not heads:
                table["columnDefinitions"] = None
            heads = False
            return orjson.dumps(table)

        return render

    def _table(
        self, resource: Resource, served: ServedVersion, raws: list[bytes], include: str, metadata: Json
    ) -> Json:
        columns = served.columns or _GENERIC
        now = datetime.now(UTC)
        rows = []
        version = "0"
        for raw in raws:
            obj = deep_json.loads(raw)
            version = obj["metadata"].get("resourceVersion", version)
            rows.append({"cells": [_cell(column.value(obj), now) for column in columns],
                         "object": _included(resource.shown_as(served.name, obj), include)})  # fmt: skip
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": version, **metadata},
            "columnDefinitions": [
                {"name": column.name, "type": column.type, "format": column.format, "priority": column.priority,
                 "description": column.description}
                for column in columns
            ],
            "rows": rows,
        }  # fmt: skip


def _cell(value: Any, now: datetime) -> Any:
    if not isinstance(value, Age):
        return value
    try:
        return human_age((now - datetime.fromisoformat(value)).total_seconds())
    except (TypeError, ValueError):
        return "<unknown>"


def _included(obj: Json, include: str) -> Json | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}

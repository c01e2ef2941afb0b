"""events.k8s.io/v1 as a view of core events: one store, two shapes.

Called by `dispatch` for every request to events.k8s.io. Pure translation; invariant: an event written through one group
is readable through the other, and translating it there and back changes nothing.

Source of the two shapes: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cotide_sim.apiserver.registry.resources import Json, Resource
from cotide_sim.apiserver.storage import deep_json

_RENAMED: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "source": "deprecatedSource",
}
_BACK: Final = {new: old for old, new in _RENAMED.items()}


@dataclass(eq=False, slots=True)
class EventView(Resource):
    """The resource `events.events.k8s.io`, kept in the collection of core events."""

    @property
    def storage_version(self) -> str:
        """Core events are stored."""
        return "v1"

    def shown_as(self, version: str, obj: Json) -> Json:
        """Return a core event in the shape of events.k8s.io."""
        shown = {_RENAMED.get(key, key): value for key, value in obj.items()}
        shown["apiVersion"] = self.api_version(version)
        return shown

    def to_storage(self, version: str, obj: Json) -> Json:
        """Return an event of events.k8s.io in the shape of the core group."""
        del version
        return {_BACK.get(key, key): value for key, value in obj.items()}

    def converter(self, version: str) -> Callable[[bytes], bytes]:
        """Return the translation of stored JSON."""
        return lambda raw: deep_json.dumps(self.shown_as(version, deep_json.loads(raw)))


def view_for(stored: Resource, named: Resource) -> EventView:
    """Return the view of core events under the names of another group."""
    return EventView(
        group=named.group,
        plural=named.plural,
        kind=named.kind,
        versions=named.versions,
        short_names=named.short_names,
        selectable=stored.selectable,
        stored_as=stored.key,
    )

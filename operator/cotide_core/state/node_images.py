"""The container images of each node, counted as nodes come, change and go.

Owned by `cluster_state.ClusterState`, read by `placement.constraints.image_locality`. An image has the size that its
first node reported, as long as any node has it: kube-scheduler does the same. Invariant: the rows of a name are the
nodes that report it now (tests/core/placement/test_image_locality.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cotide_core.events import NodeImage


@dataclass(slots=True)
class HeldImage:
    """An image that at least one node has."""

    size_bytes: int
    rows: set[int] = field(default_factory=set)
    version: int = 0
    """Rises with every row that comes or goes."""


class NodeImages:
    """Images of one state.

    Attributes
    ----------
    changed : names that gained their first node, or lost their last, since the reader last emptied the set.
    """

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self._held: dict[str, HeldImage] = {}
        self._clock = 0

    def get(self, name: str) -> HeldImage | None:
        """Return an image by one of its names; None if no node has it."""
        return self._held.get(name)

    def wished(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the image names of a pod's containers if a node has one of them; otherwise none, as all nodes are
        equal.
        """
        return names if any(name in self._held for name in names) else ()

    def versions(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return a value that changes with every change to one of these names; 0 for a name that no node has."""
        return tuple([0 if (held := self._held.get(name)) is None else held.version for name in names])

    def change(self, row: int, before: tuple[NodeImage, ...], now: tuple[NodeImage, ...]) -> None:
        """Replace the images of a row."""
        if before == now:
            return
        names = {node_image.name for node_image in now}
        known = {node_image.name for node_image in before}
        for node_image in before:
            held = None if node_image.name in names else self._held.get(node_image.name)
            if held is not None:
                self._clock += 1
                held.version = self._clock
                held.rows.discard(row)
                if not held.rows:
                    del self._held[node_image.name]
                    self.changed.add(node_image.name)
        for node_image in now:
            held = self._held.get(node_image.name)
            if held is None:
                held = self._held[node_image.name] = HeldImage(node_image.size_bytes)
                self.changed.add(node_image.name)
            elif held.rows == {row}:
                held.size_bytes = node_image.size_bytes
            elif node_image.name in known:
                continue
            self._clock += 1
            held.version = self._clock
            held.rows.add(row)

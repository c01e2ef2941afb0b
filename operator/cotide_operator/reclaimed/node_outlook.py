"""The published outlook of each node for the coming slot, and its listeners.

`host_load` writes it after each slot, and when trust or freshness changes between two slots; the publisher of reclaimed
capacity reads it. The numbers come from the engine's own formula for placing pods (`cotide_core.state.host_load`), so
that publication and decisions agree by construction. The engine itself never reads an outlook.

Invariant: 0 <= offered <= physical for both resources, whatever was measured or forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

CALIBRATED: Final = "Calibrated"
"""The forecasts reach their stated coverage: the offer follows them."""
TOO_FEW_RECORDS: Final = "TooFewRecords"
"""Trusted on the pooled prior: too few slots of this node were scored to judge its forecasts."""
COVERAGE_TOO_LOW: Final = "CoverageTooLow"
STALE_FEED: Final = "StaleFeed"
NO_FORECAST: Final = "NoForecast"
REASONS: Final = (CALIBRATED, TOO_FEW_RECORDS, COVERAGE_TOO_LOW, STALE_FEED, NO_FORECAST)


@dataclass(frozen=True, slots=True)
class NodeOutlook:
    """The published values of one node for the coming slot.

    Attributes
    ----------
    node : its name.
    until_seconds : end of the slot, on the operator's clock; later the outlook is invalid.
    online_millicores, online_memory_bytes : predicted peak use of the online pods at the configured quantile; for a
        node that has fallen back, the requests of those pods.
    offered_millicores, offered_memory_bytes : what batch and gratis pods together may use: allocatable x capacity
        share - the online peak; fallen back, allocatable - requests of online pods. Never below 0 nor above physical.
    trusted : False where the node has fallen back to requests.
    reason : CamelCase, one of this module's constants.
    message : one sentence with figures.
    coverage_p99 : share of recent slots at or below the p99 forecast; None before any was scored.
    absolute_error_share, bias_share : mean absolute error and mean of forecast minus load, in shares of the node's cpu.
    underestimate_share : share of recent slots with a load above the point forecast.
    """

    node: str
    until_seconds: float
    online_millicores: float
    online_memory_bytes: float
    offered_millicores: int
    offered_memory_bytes: int
    trusted: bool
    reason: str
    message: str
    coverage_p99: float | None = None
    absolute_error_share: float | None = None
    bias_share: float | None = None
    underestimate_share: float | None = None


Listener = Callable[[list[NodeOutlook]], None]


class Outlooks:
    """The latest outlook of each node. Owned by the event loop: listeners are called in it and must not block."""

    def __init__(self) -> None:
        self._by_node: dict[str, NodeOutlook] = {}
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener`` with all later outlooks, one list for each `put`."""
        self._listeners.append(listener)

    def get(self, node: str) -> NodeOutlook | None:
        """Return the latest outlook of a node."""
        return self._by_node.get(node)

    def put(self, outlooks: Iterable[NodeOutlook]) -> None:
        """Replace the outlooks of these nodes and call the listeners."""
        news = list(outlooks)
        self._by_node.update({outlook.node: outlook for outlook in news})
        if news:
            for listener in self._listeners:
                listener(news)

    def keep_only(self, nodes: Collection[str]) -> None:
        """Forget deleted nodes."""
        for name in [name for name in self._by_node if name not in nodes]:
            del self._by_node[name]

    def __iter__(self) -> Iterator[NodeOutlook]:
        return iter(self._by_node.values())

    def __len__(self) -> int:
        return len(self._by_node)

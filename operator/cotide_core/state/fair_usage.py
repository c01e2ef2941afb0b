"""The past use of namespaces: the dominant share of each, decaying, by weight.

Owned by `namespace_use.NamespaceUse`, which reports every batch and gratis pod that begins or ends to hold; read by
`queueing.active_pods`. Each namespace has an average of its held amounts that decays with a half-life h: ``E(t) =
integral of held(s) ln2/h 2^(-(t-s)/h) ds``. The comparison uses the average one half-life from now if the held amounts
stay, ``(E + held) / 2``. A start therefore counts at once, and the past still counts. Of cpu and memory the larger
share of all nodes counts (dominant resource fairness, Ghodsi et al. 2011), by weight. Invariant: ``held`` is the sum
over its holding batch and gratis pods. Pure; time comes with `advance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NEGLIGIBLE: Final = 1e-6
"""A namespace that holds nothing is forgotten below this share: a hundredth of a core of 10,000. Chosen."""


@dataclass(slots=True)
class _Use:
    held: list[float]
    """Held millicores and bytes; the average likewise."""
    average: list[float]


class FairUsage:
    """Shares of namespaces.

    Parameters
    ----------
    half_life_seconds : above 0.

    Attributes
    ----------
    weights : of the namespaces with a weight other than 1.
    """

    def __init__(self, half_life_seconds: float) -> None:
        self._half_life = half_life_seconds
        self._uses: dict[str, _Use] = {}
        self._now: float | None = None
        self._capacity = (1.0, 1.0)
        self.weights: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._uses)

    def advance(self, now: float, capacity: tuple[float, float]) -> None:
        """Advance the time to ``now``; later `hold` and `share` mean this moment.

        Parameters
        ----------
        capacity : millicores and bytes that all nodes offer.
        """
        self._capacity = (max(1.0, capacity[0]), max(1.0, capacity[1]))
        passed = 0.0 if self._now is None else max(0.0, now - self._now)
        self._now = now
        if not passed:
            return
        kept = 2.0 ** (-passed / self._half_life)
        for name, use in list(self._uses.items()):
            for index, held in enumerate(use.held):
                use.average[index] = use.average[index] * kept + held * (1.0 - kept)
            if not any(use.held) and self._dominant(use.average) < NEGLIGIBLE:
                del self._uses[name]

    def hold(self, name: str, millicores: int, memory_bytes: int, started_seconds: float | None = None) -> None:
        """Count the amounts that a pod begins to hold, or with negative amounts ends to hold.

        Parameters
        ----------
        started_seconds : when it began, if that was before now: a new engine learns in this way about running pods.
        """
        use = self._uses.setdefault(name, _Use([0.0, 0.0], [0.0, 0.0]))
        past = 0.0
        if started_seconds is not None and self._now is not None and millicores >= 0:
            past = 1.0 - 2.0 ** (-max(0.0, self._now - started_seconds) / self._half_life)
        for index, amount in enumerate((millicores, memory_bytes)):
            use.held[index] += amount
            use.average[index] += past * amount

    def share(self, name: str) -> float:
        """Return the weighted share that decides; the namespace with the smallest is next."""
        use = self._uses.get(name)
        if use is None:
            return 0.0
        mean = [(average + held) / 2 for average, held in zip(use.average, use.held, strict=True)]
        return self._dominant(mean) / self.weights.get(name, 1.0)

    def _dominant(self, amounts: list[float]) -> float:
        return max(amount / offered for amount, offered in zip(amounts, self._capacity, strict=True))

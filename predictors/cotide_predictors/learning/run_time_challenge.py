"""May a challenger replace the forecaster of live pods' run times? Both forecast the same pods, one in shadow.

Called live with each run that ended. A forecast's loss is one minus its accuracy (Naghshnejad 2019, eq. 4.2). An hour
with ended runs is one score: the mean over namespaces of the mean over their series. Neither a Job of ten thousand pods
nor a tenant of a thousand Jobs therefore decides for the others. `HOURS` such hours are one challenge, judged once, at
its end, by the rule of `challenge`: blocks of time, with the difference between them as noise. Invariants: a challenger
is refused when it is worse beyond noise in more namespaces than chance explains, of those that can be judged alone. It
is also refused when it is not better beyond noise over all, since a change without a gain is a needless risk. A
challenge that is over is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import ModelError
from cotide_core.kernels.array_types import Floats
from cotide_predictors.learning.challenge import LEAST_IN_BLOCKS, worse_beyond_noise

HOURS: Final = 48
"""Of a challenge (chosen: two days of a cluster that is always busy, six hours in each of eight blocks)."""
HOUR_SECONDS: Final = 3600.0
LEAST_DIFFERENCE: Final = 0.01
"""Of accuracy: a smaller gain counts as none (chosen)."""
MOST_SERIES: Final = 10_000
"""Series with a score of their own in an hour, those that end first (chosen: 2 MB); further ones of a namespace count
as one.
"""
MOST_NAMESPACES: Final = 1_000
"""Namespaces with a score in an hour (chosen)."""
FURTHER: Final = b""
"""Key for all further series of a namespace; the key of a real series is never empty."""
BY_CHANCE: Final = 0.05
"""Share of equal namespaces that look worse by chance; of fewer than twenty even one is too many."""

Losses = tuple[float, float]
"""Of champion and challenger."""


@dataclass(frozen=True, slots=True)
class RunTimeVerdict:
    """The outcome of a challenge.

    Attributes
    ----------
    promoted : whether the challenger takes over.
    gain : of accuracy, over all. worse : namespaces with a challenger that was worse beyond noise.
    """

    promoted: bool
    gain: float
    worse: int


class RunTimeChallenge:
    """The running challenge.

    Parameters
    ----------
    hours : until the judgement, >= 8.
    """

    def __init__(self, *, hours: int = HOURS) -> None:
        self.hours = hours
        self.closed: list[dict[bytes, Losses]] = []
        """Mean losses by namespace of each hour that is over."""
        self._hour: int | None = None
        self._open: dict[tuple[bytes, bytes], list[float]] = {}

    def losses(self) -> Floats:
        """Return (2,) mean losses of champion and challenger over the hours that are over; nan before any."""
        return _by_hour(self.closed).mean(axis=0) if self.closed else np.full(2, np.nan)

    def score(
        self, namespace: bytes, series: bytes, champion: float, challenger: float, now: float
    ) -> RunTimeVerdict | None:
        """Take in the accuracies of both for one run; return the verdict when the run shows that the last hour is over.

        Parameters
        ----------
        now : seconds of the driver's clock, which never goes back.
        """
        verdict = None
        hour = int(now // HOUR_SECONDS)
        if hour != self._hour:
            verdict = self._close()
            self._hour = hour
        found = self._open.get((namespace, series))
        if found is None and len(self._open) >= MOST_SERIES:
            series = FURTHER
            found = self._open.get((namespace, series))
        if found is None:
            if len(self._open) >= MOST_SERIES + MOST_NAMESPACES:
                return verdict
            found = self._open[namespace, series] = [0.0, 0.0, 0.0]
        for index, term in enumerate((1.0 - champion, 1.0 - challenger, 1.0)):
            found[index] += term
        return verdict

    def arrays(self, most_namespaces: int = MOST_NAMESPACES) -> dict[str, NDArray[Any]]:
        """Return the hours that are over, to be kept: (n, b) names and (h, n, 2) losses, nan without an ended run.

        Parameters
        ----------
        most_namespaces : those with the most hours.
        """
        hours: dict[bytes, int] = {}
        for hour in self.closed:
            for name in hour:
                hours[name] = hours.get(name, 0) + 1
        names = sorted(hours, key=lambda name: (-hours[name], name))[:most_namespaces]
        losses = np.full((len(self.closed), len(names), 2), np.nan, np.float32)
        for row, hour in enumerate(self.closed):
            for column, name in enumerate(names):
                losses[row, column] = hour.get(name, (np.nan, np.nan))
        size = len(names[0]) if names else 0
        return {"names": np.frombuffer(b"".join(names), np.uint8).reshape(len(names), size), "losses": losses}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on with the hours of an earlier process.

        Raises
        ------
        ModelError
            One sentence that names the fault; the state is unchanged then.
        """
        names, losses = arrays.get("names"), arrays.get("losses")
        if names is None or losses is None or names.dtype != np.uint8 or names.ndim != 2:
            raise ModelError("a kept challenge has no names or no losses")
        if losses.ndim != 3 or losses.shape[1:] != (len(names), 2) or len(losses) >= self.hours:
            raise ModelError(f"a kept challenge has losses of shape {losses.shape}")
        known = np.isfinite(losses).all(axis=2)
        if losses.dtype != np.float32 or not ((losses[known] >= 0.0) & (losses[known] <= 1.0)).all():
            raise ModelError("a kept challenge has a loss outside of 0 to 1")
        keys = [name.tobytes() for name in names]
        closed = [
            {keys[column]: (float(hour[column, 0]), float(hour[column, 1])) for column in np.flatnonzero(present)}
            for hour, present in zip(losses, known, strict=True)
        ]
        self.closed, self._open, self._hour = [hour for hour in closed if hour], {}, None

    def _close(self) -> RunTimeVerdict | None:
        """End the open hour, and the challenge with the last."""
        if not self._open:
            return None
        by_namespace: dict[bytes, list[Losses]] = {}
        for (namespace, _), (champion, challenger, count) in self._open.items():
            if namespace in by_namespace or len(by_namespace) < MOST_NAMESPACES:
                by_namespace.setdefault(namespace, []).append((champion / count, challenger / count))
        self._open = {}
        self.closed.append({name: _mean(found) for name, found in by_namespace.items()})
        if len(self.closed) < self.hours:
            return None
        verdict = judged(self.closed)
        self.closed = []
        return verdict


def judged(hours: Sequence[Mapping[bytes, Losses]]) -> RunTimeVerdict:
    """Judge the mean losses by namespace of eight hours or more, in order of time."""
    champion, challenger = _by_hour(hours).T
    worse, alone = 0, 0
    for name in sorted({name for hour in hours for name in hour}):
        own = np.array([hour[name] for hour in hours if name in hour])
        if len(own) >= LEAST_IN_BLOCKS:
            alone += 1
            worse += worse_beyond_noise(own[:, 1], own[:, 0], LEAST_DIFFERENCE)
    promoted = worse <= BY_CHANCE * alone and worse_beyond_noise(champion, challenger, LEAST_DIFFERENCE)
    return RunTimeVerdict(promoted, float(champion.mean() - challenger.mean()), worse)


def _by_hour(hours: Sequence[Mapping[bytes, Losses]]) -> Floats:
    """Return (h, 2) mean losses over namespaces."""
    return np.array([_mean(list(hour.values())) for hour in hours])


def _mean(found: Sequence[Losses]) -> Losses:
    return sum(value for value, _ in found) / len(found), sum(other for _, other in found) / len(found)

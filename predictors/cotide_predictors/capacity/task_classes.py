"""Task classes by k-means, in two steps: by size at arrival, by run time once a task has run (Zhang and Boutaba 2014).

Fitted by the capacity planner, on tasks that have ended; read by `container_demand`. Section III of the paper divides
tasks by k-means and names no features and no number of classes. The thesis behind it labels in two steps, since a
task's run time is unknown at its arrival. Here: step 1 on standardised (log resources, priority); step 2 splits each
size class in short and long on log run time, where that explains enough. Invariant: `at_arrival` reads only data that
is known at arrival, and gives every task a class, even an unusual one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError
from cotide_predictors.one_thread import on_one_thread

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SMALLEST: Final = 1e-6
"""Smaller amounts count as this one; they would be far away on a logarithmic axis (chosen)."""
GAIN: Final = 0.03
"""Least share of the variance that a further class must explain (chosen: the rule for the number of classes)."""
SPLIT_EXPLAINS: Final = 0.5
"""Least share of the variance of log run time that two run-time classes must explain (chosen)."""
LEAST_TASKS: Final = 20
"""A smaller size class is not split (chosen)."""
FIT_ROWS: Final = 20_000
"""Largest number of tasks for k-means, drawn at random (chosen: centres no longer move)."""


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Tasks of one size.

    Attributes
    ----------
    mean, deviation, largest : (2, R) of the short and of the long tasks' resources; equal where all are of a kind.
    seconds : sorted run times of past tasks, at most 2,000.
    long_after : seconds of running after which a task counts as long; inf where run times are of one kind.
    share : of all tasks.
    """

    mean: Floats
    deviation: Floats
    largest: Floats
    seconds: Floats
    long_after: float
    share: float


class TaskClasses:
    """K-means in two steps, with the scikit-learn contract.

    Attributes
    ----------
    sizes_ : the size classes, by rising mean of the first resource.
    explained_ : share of the variance that the size classes explain.
    """

    def __init__(self, *, most: int = 10, random_state: int = 0) -> None:
        """Take settings: ``most``: largest number of size classes."""
        self.most, self.random_state = most, random_state

    @on_one_thread
    def fit(self, need: Floats, priority: Floats, seconds: Floats) -> TaskClasses:
        """Learn classes.

        Parameters
        ----------
        need : (n, R) requested resources, >= 0.
        priority : (n,).
        seconds : (n,) run times, > 0.

        Raises
        ------
        InputError
            When there are no tasks, or a number is not finite.
        """
        if not len(need):
            raise InputError("there is no task to learn classes from", field="tasks")
        if not (np.isfinite(need).all() and np.isfinite(priority).all() and np.isfinite(seconds).all()):
            raise InputError("tasks hold a number that is not finite", field="tasks")
        rng = np.random.default_rng(self.random_state)
        rows = np.arange(len(need)) if len(need) <= FIT_ROWS else rng.choice(len(need), FIT_ROWS, replace=False)
        raw = self._features(need, priority)
        self._centre, spread = raw.mean(axis=0), raw.std(axis=0)
        self._spread = np.where(spread > 1e-9, spread, 1.0)
        self.centres_, self.explained_ = self._cluster((raw[rows] - self._centre) / self._spread)
        label = self.at_arrival(need, priority)
        order = sorted(
            (index for index in range(len(self.centres_)) if (label == index).any()),
            key=lambda index: float(need[label == index, 0].mean()),
        )
        self.centres_ = self.centres_[order]
        label = self.at_arrival(need, priority)
        self.sizes_ = tuple(
            self._size_class(need[label == index], seconds[label == index], len(need), rng)
            for index in range(len(self.centres_))
        )
        return self

    def at_arrival(self, need: Floats, priority: Floats) -> Integers:
        """Return (n,) the size class of each task: the first label."""
        scaled = (self._features(need, priority) - self._centre) / self._spread
        label = np.empty(len(scaled), dtype=np.int64)
        for first in range(0, len(scaled), 65_536):
            part = scaled[first : first + 65_536]
            distance = ((part[:, None, :] - self.centres_[None]) ** 2).sum(axis=2)
            label[first : first + 65_536] = distance.argmin(axis=1)
        return label

    def is_long(self, label: Integers, age_seconds: Floats) -> NDArray[np.bool_]:
        """Return (n,) whether a task that has run so long counts as long: the second label."""
        limit = np.array([size.long_after for size in self.sizes_])
        return np.asarray(age_seconds >= limit[label])

    @staticmethod
    def _features(need: Floats, priority: Floats) -> Floats:
        return np.column_stack((np.log10(np.maximum(need, SMALLEST)), priority))

    def _cluster(self, points: Floats) -> tuple[Floats, float]:
        """Return the centres for the smallest number of classes after which one more explains less than `GAIN`."""
        from sklearn.cluster import KMeans

        total = float(((points - points.mean(axis=0)) ** 2).sum())
        centres, left = points.mean(axis=0, keepdims=True), total
        distinct = len(np.unique(points.round(9), axis=0))
        for count in range(2, min(self.most, distinct) + 1):
            fitted = KMeans(count, n_init=3, random_state=self.random_state).fit(points)
            if left - fitted.inertia_ < GAIN * total:
                break
            centres, left = fitted.cluster_centers_, float(fitted.inertia_)
        return centres, 1.0 - left / total if total > 0 else 1.0

    def _size_class(self, need: Floats, seconds: Floats, total: int, rng: np.random.Generator) -> SizeClass:
        kept = np.sort(seconds if len(seconds) <= 2000 else rng.choice(seconds, 2000, replace=False))
        limit = _long_after(kept)
        long = seconds >= limit
        kinds = (need[~long], need[long]) if long.any() and not long.all() else (need, need)
        mean, deviation, largest = (
            np.stack([getattr(part, measure)(axis=0) for part in kinds]) for measure in ("mean", "std", "max")
        )
        return SizeClass(mean, deviation, largest, kept, limit, len(need) / total)


def _long_after(seconds: Floats) -> float:
    """Return where short and long part: the best split of log run times in two, which is k-means in one dimension."""
    if len(seconds) < LEAST_TASKS:
        return float("inf")
    logs = np.log(np.maximum(seconds, SMALLEST))
    counts = np.arange(1, len(logs))
    below = np.cumsum(logs)[:-1]
    above = logs.sum() - below
    between = below**2 / counts + above**2 / (len(logs) - counts) - logs.sum() ** 2 / len(logs)
    total = float(((logs - logs.mean()) ** 2).sum())
    best = int(between.argmax())
    if total <= 1e-9 * len(logs) or between[best] < SPLIT_EXPLAINS * total:
        return float("inf")
    middle = (below[best] / counts[best] + above[best] / (len(logs) - counts[best])) / 2.0
    return float(np.exp(middle))

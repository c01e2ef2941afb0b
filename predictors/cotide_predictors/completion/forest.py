"""A random forest as plain arrays: grown by scikit-learn, stored as numbers, evaluated by numpy.

Called by `completion.CompletionModel`. A pickled forest runs code when it is loaded and ties the file to one
library version; these arrays do neither. Invariant: `predict` equals scikit-learn's forest on the same input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import ModelError
from cotide_core.kernels.array_types import Floats, Nodes

ROWS_AT_ONCE: Final = 256
"""Rows that step down together: their indices stay in the cache (chosen; 4,000 at once took twice as long a row)."""
DEEPEST: Final = 10
"""Largest depth of a tree: every step costs time for all rows (chosen; deeper ones scored the same)."""
_ARRAYS: Final = ("roots", "feature", "threshold", "left", "right", "value")


@dataclass(frozen=True, slots=True)
class NumericForest:
    """Trees end to end in flat arrays of m nodes.

    Attributes
    ----------
    roots : (trees,) index of each tree's root.
    feature : (m,) column that a node compares; a leaf compares column 0 and goes to itself.
    threshold : (m,) a row goes left where its value, as float32, is <= this.
    left, right : (m,) indices of the children; a leaf's are itself.
    value : (m,) mean target of the rows that reached the node.
    depth : steps from any root that always end in a leaf.
    """

    roots: Nodes
    feature: Nodes
    threshold: Floats
    left: Nodes
    right: Nodes
    value: Floats
    depth: int
    _steps: tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]] = field(init=False, repr=False, compare=False)
    """Roots, features and children, right and left in turn, as platform-sized indices: each step is four look-ups."""

    def __post_init__(self) -> None:
        children = np.stack((self.right, self.left), axis=1).ravel()
        steps = tuple(nodes.astype(np.intp) for nodes in (self.roots, self.feature, children))
        object.__setattr__(self, "_steps", steps)

    @classmethod
    def grow(
        cls, features: Floats, target: Floats, *, trees: int, least_leaf: int, random_state: int
    ) -> tuple[NumericForest, Floats]:
        """Return a forest grown on (n, k) features, and its (n,) out-of-bag predictions.

        A row that was in every bag has no out-of-bag prediction: nan.
        """
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(
            n_estimators=trees, min_samples_leaf=least_leaf, max_depth=DEEPEST, random_state=random_state
        )
        forest.fit(features, target)
        total, voters = np.zeros(len(target)), np.zeros(len(target))
        narrow = features.astype(np.float32)
        for tree, bag in zip(forest.estimators_, forest.estimators_samples_, strict=True):
            outside = np.ones(len(target), dtype=bool)
            outside[bag] = False
            if outside.any():
                total[outside] += tree.predict(narrow[outside])
                voters[outside] += 1
        out_of_bag = np.full(len(target), np.nan)
        np.divide(total, voters, out=out_of_bag, where=voters > 0)
        return cls.from_sklearn(forest), out_of_bag

    @classmethod
    def from_sklearn(cls, forest: Any) -> NumericForest:
        """Return the arrays of a fitted `RandomForestRegressor` of one output."""
        trees = [estimator.tree_ for estimator in forest.estimators_]
        offsets = np.cumsum([0, *(tree.node_count for tree in trees)])
        own = [np.arange(tree.node_count) for tree in trees]
        leaf = [tree.children_left < 0 for tree in trees]

        def children(name: str) -> Nodes:
            parts = [
                np.where(ends, here, getattr(tree, name)) + offset
                for tree, ends, here, offset in zip(trees, leaf, own, offsets, strict=False)
            ]
            return np.concatenate(parts).astype(np.int32)

        return cls(
            roots=offsets[:-1].astype(np.int32),
            feature=np.concatenate([np.maximum(tree.feature, 0) for tree in trees]).astype(np.int32),
            threshold=np.concatenate([tree.threshold for tree in trees]),
            left=children("children_left"),
            right=children("children_right"),
            value=np.concatenate([tree.value[:, 0, 0] for tree in trees]),
            depth=max(tree.max_depth for tree in trees),
        )

    def predict(self, features: Floats) -> Floats:
        """Return (n,) means over the trees' leaves; all rows and trees step down together."""
        # scikit-learn compares float32 values with float64 thresholds; this code does the same, or rows near a split
        # differ.
        narrow = np.ascontiguousarray(features, dtype=np.float32)
        (roots, feature, children), width = self._steps, narrow.shape[1]
        mean = np.empty(len(narrow))
        for start in range(0, len(narrow), ROWS_AT_ONCE):
            rows = narrow[start : start + ROWS_AT_ONCE]
            values, offset = rows.ravel(), np.arange(len(rows))[:, None] * width
            node = np.broadcast_to(roots, (len(rows), len(roots)))
            for _ in range(self.depth):
                goes_left = values.take(feature.take(node) + offset) <= self.threshold.take(node)
                node = children.take(2 * node + goes_left)
            mean[start : start + ROWS_AT_ONCE] = self.value.take(node).mean(axis=1)
        return mean

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the forest as named arrays for an npz file."""
        named: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in _ARRAYS}
        return {**named, "depth": np.asarray(self.depth, dtype=np.int32)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> NumericForest:
        """Return the forest of named arrays, after checking that every index stays inside.

        Raises
        ------
        ModelError
            When an array is missing or an index points outside.
        """
        missing = [name for name in (*_ARRAYS, "depth") if name not in arrays]
        if missing:
            raise ModelError(f"the forest lacks the array {missing[0]}")
        parts = {name: np.ascontiguousarray(arrays[name]) for name in _ARRAYS}
        nodes = len(parts["value"])
        for name in ("feature", "threshold", "left", "right"):
            if len(parts[name]) != nodes:
                raise ModelError(f"the forest's array {name} has {len(parts[name])} entries for {nodes} nodes")
        for name in ("roots", "left", "right"):
            if len(parts[name]) and not (parts[name].min() >= 0 and parts[name].max() < nodes):
                raise ModelError(f"the forest's array {name} points outside its nodes")
        return cls(**parts, depth=int(arrays["depth"]))

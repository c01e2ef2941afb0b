"""The share of a pod's images that each node already has.

Called by `feasibility` for the scores of pods with an image on some node. The formula is that of kube-scheduler's
ImageLocality: each container's image counts its size times the share of all nodes that have it. One node with a large
image therefore does not attract all pods. The sum is scaled between two thresholds, in whole points of 100. Invariant:
a node's points equal those of kube-scheduler (tests/real/test_constraints.py).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.state.shapes import FitShape
from cotide_core.state.snapshot import Snapshot

WEIGHT: Final = 1.0
"""Weight relative to the free share at 1: kube-scheduler's default weights of ImageLocality and NodeResourcesFit
(k8s.io/kubernetes, default_plugins.go).
"""
LEAST_BYTES: Final = 23 * 1024 * 1024
"""A sum up to here gives 0 points (k8s.io/kubernetes, image_locality.go, minThreshold)."""
MOST_BYTES: Final = 1000 * 1024 * 1024
"""For each container: a higher sum gives no more points (maxContainerThreshold)."""
POINTS: Final = 100


def image_points(shape: FitShape, snapshot: Snapshot) -> Floats:
    """Return (N,) 0 to 100 points, whole ones, for the images of a shape on each row."""
    most = MOST_BYTES * max(1, len(shape.images))
    sums = np.zeros(snapshot.size, np.int64)
    for name in shape.images:
        held = snapshot.state.images.get(name)
        if held is None:
            continue
        counted = int(held.size_bytes * (len(held.rows) / snapshot.node_count))
        sums[np.fromiter(held.rows, np.intp, len(held.rows))] += min(most, counted)
    points = POINTS * (np.clip(sums, LEAST_BYTES, most) - LEAST_BYTES) // (most - LEAST_BYTES)
    return points.astype(np.float64)


def locality(shape: FitShape, snapshot: Snapshot) -> Floats | None:
    """Return (N,) the addition to the scores of the rows; None if all rows are equal."""
    points = image_points(shape, snapshot)
    return WEIGHT * points / POINTS if points.any() else None

"""How much of a pod's images each node has already.

Called by `feasibility` for the scores of pods of which some node has an image. The formula is that of kube-scheduler's
ImageLocality: each container's image counts its size times the share of all nodes that have it, so that one node with
a large image does not draw all pods to it; the sum is scaled between two thresholds, in whole points of 100. Invariant:
a node's points are those that kube-scheduler gives it (tests/real/test_constraints.py).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.state.shapes import FitShape
from cotide_core.state.snapshot import Snapshot

WEIGHT: Final = 1.0
"""Where the free share weighs 1: kube-scheduler's default weight of ImageLocality beside NodeResourcesFit
(k8s.io/kubernetes, default_plugins.go)."""
LEAST_BYTES: Final = 23 * 1024 * 1024
"""Up to here a sum counts nothing (k8s.io/kubernetes, image_locality.go, minThreshold)."""
MOST_BYTES: Final = 1000 * 1024 * 1024
"""For each container: a higher sum counts no more (maxContainerThreshold)."""
POINTS: Final = 100


def image_points(shape: FitShape, snapshot: Snapshot) -> Floats:
    """Return (N,) 0 to 100 points, whole ones, for what each row has of the images of a shape."""
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
    """Return (N,) what is added to the scores of the rows; None where the images tell no two of them apart."""
    points = image_points(shape, snapshot)
    return WEIGHT * points / POINTS if points.any() else None

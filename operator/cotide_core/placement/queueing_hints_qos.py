"""The shapes that a change can help under a latency guard, computed before any pod is woken.

Called by `queueing_hints` with the shapes that fit on rows which have just been relieved. A shape that the guard
refuses on each of them needs no attempt: all other rows refused it before. Forecasts never fall in size or cpu. The
first call therefore covers only the smallest jobs of each type, on all rows; a second call covers only jobs that no
refusal covers. Invariant: a shape is left out only if the guard's answers about the current rows refuse it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cotide_core.forecasts import QosForecaster
from cotide_core.qos.qos_guard import QosGuard
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot

Pair = tuple[Shape, int]
"""A shape and a row that it fits on."""


def shapes_to_requeue(
    snapshot: Snapshot, guard: QosGuard, wanted: Iterable[tuple[Shape, Sequence[int]]], forecaster: QosForecaster
) -> dict[Shape, list[int]]:
    """Return the batch or gratis shapes that the guard admits on some of their rows, with those rows."""
    passed: dict[Shape, list[int]] = {}
    unknown: list[Pair] = []
    counts = snapshot.service_counts
    for shape, rows in wanted:
        for row in rows:
            if counts.item(row):
                unknown.append((shape, row))
            else:
                passed.setdefault(shape, []).append(row)  # a node without a service needs no forecast
    asked = _smallest(unknown)
    while asked:
        answers = guard.ask(snapshot, asked, forecaster)
        for (shape, row), probability in zip(asked, answers, strict=True):
            if probability <= guard.threshold:
                passed.setdefault(shape, []).append(row)
        already_asked = set(asked)
        unknown = [pair for pair in unknown if pair not in already_asked and not guard.covers(snapshot, *pair)]
        asked = unknown
    return passed


def _smallest(pairs: Sequence[Pair]) -> list[Pair]:
    """Return, for each type and row, the pairs without a pair that is smaller both in input and in cpu."""
    least: list[Pair] = []
    cheapest: dict[tuple[int, int], int] = {}
    for shape, row in sorted(pairs, key=_size):
        best = cheapest.get((shape.type_column, row))
        if best is None or shape.fit.millicores < best:
            cheapest[shape.type_column, row] = shape.fit.millicores
            least.append((shape, row))
    return least


def _size(pair: Pair) -> tuple[int, int, int]:
    shape = pair[0]
    return shape.input_bytes, shape.fit.millicores, shape.order

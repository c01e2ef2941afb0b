"""Which measured mixes are kept: the latest as they came, and of older ones a balance over all past mixes.

Fed by the learning loop, read by the training. Two parts::

    measured -> recent (by service, in order of time) -> reservoir (by cell) -> dropped

The recent part judges a challenger, so it is kept without selection. The reservoir holds cells: the same service, rate
within a factor of two, and jobs by type within a factor of two. When it is full the largest cell loses one of its own
at random, so that rare mixes stay however often the usual one is seen. Within a cell the loss is drawn without regard
to the label, since every other draw would raise the learned probability. Only the last violation of a cell stays, since
without one the cell would show that no limit ever broke there. Invariant: at most `capacity` samples in the reservoir,
and outside of it at most `recent` of each service.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable
from typing import Final

import numpy as np

from cotide_core.recording.samples import MeasuredMix

RECENT: Final = 1_000
"""Latest samples of each service that are kept as they came (chosen: a service with one pod, sampled each 15 s, fills
it in four hours)."""

HEAP_LEAST: Final = 64
"""Entries of the heap, on top of two for each cell, at which it is rebuilt (chosen)."""

Cell = tuple[str, int, tuple[tuple[str, int], ...]]


class SampleReservoir:
    """Measured mixes of any number of services, bounded.

    Parameters
    ----------
    capacity : samples in the reservoir.
    recent : latest samples of each service outside of the reservoir.
    generator : draws the sample to drop.
    """

    def __init__(self, capacity: int, *, recent: int = RECENT, generator: np.random.Generator) -> None:
        self.capacity = capacity
        self.recent = recent
        self._generator = generator
        self._latest: dict[str, deque[MeasuredMix]] = {}
        self._cells: dict[Cell, list[MeasuredMix]] = {}
        self._largest: list[tuple[int, Cell]] = []
        """Heap of (-size, cell); entries of another size than the cell's are stale."""
        self._size = 0

    def __len__(self) -> int:
        return self._size + sum(map(len, self._latest.values()))

    @property
    def services(self) -> tuple[str, ...]:
        """Services with recent samples, sorted."""
        return tuple(sorted(self._latest))

    def all_services(self) -> set[str]:
        """Return the services with any kept sample."""
        return {*self._latest, *(cell[0] for cell in self._cells)}

    def add(self, measured: Iterable[MeasuredMix]) -> None:
        """Take samples in order of time."""
        for measured_mix in measured:
            latest = self._latest.setdefault(measured_mix.service, deque())
            latest.append(measured_mix)
            if len(latest) > self.recent:
                self._keep(latest.popleft())

    def older(self) -> list[MeasuredMix]:
        """Return the samples from before the recent part, in no order."""
        return [measured_mix for cell in self._cells.values() for measured_mix in cell]

    def latest(self) -> dict[str, list[MeasuredMix]]:
        """Return the recent part by service, each oldest first."""
        return {service: list(samples) for service, samples in self._latest.items()}

    def digest(self, most: int) -> list[MeasuredMix]:
        """Return at most the given number of samples, the cells in turn, so that the rarest mixes are all in it."""
        cells: dict[Cell, list[MeasuredMix]] = {cell: list(kept) for cell, kept in self._cells.items()}
        for samples in self._latest.values():
            for sample in samples:
                cells.setdefault(cell_of(sample), []).append(sample)
        chosen: list[MeasuredMix] = []
        left = sorted(cells.values(), key=len)
        for at, cell in enumerate(left):
            share = (most - len(chosen)) // (len(left) - at)
            if len(cell) > share:
                drawn = np.sort(self._generator.choice(len(cell), share, replace=False))
                chosen.extend(cell[index] for index in drawn.tolist())
            else:
                chosen.extend(cell)
        return chosen

    def forget(self, services: Iterable[str]) -> None:
        """Drop all samples of services, for example of Workloads that were deleted."""
        gone = set(services)
        for service in gone:
            self._latest.pop(service, None)
        for cell in [cell for cell in self._cells if cell[0] in gone]:
            self._size -= len(self._cells.pop(cell))

    def clear_older(self) -> None:
        """Drop the reservoir; the recent part stays."""
        self._cells.clear()
        self._largest.clear()
        self._size = 0

    def restore(self, kept: Iterable[MeasuredMix]) -> None:
        """Take the samples of an earlier run: all of them count as old, since this run measured none of them."""
        for measured_mix in kept:
            self._keep(measured_mix)

    def _keep(self, one: MeasuredMix) -> None:
        cell = cell_of(one)
        samples = self._cells.setdefault(cell, [])
        samples.append(one)
        self._size += 1
        heapq.heappush(self._largest, (-len(samples), cell))
        while self._size > self.capacity:
            self._drop_one()
        if len(self._largest) > HEAP_LEAST + 2 * len(self._cells):
            # Stale entries below the top never come up: without this the heap would grow by one with each sample.
            self._largest = [(-len(kept), cell) for cell, kept in self._cells.items()]
            heapq.heapify(self._largest)

    def _drop_one(self) -> None:
        while True:
            size, cell = self._largest[0]
            samples = self._cells.get(cell)
            if samples is not None and len(samples) == -size:
                break
            heapq.heappop(self._largest)
        heapq.heappop(self._largest)
        index = int(self._generator.integers(len(samples)))
        if samples[index].broken and sum(sample.broken for sample in samples) == 1 and len(samples) > 1:
            index = (index + 1) % len(samples)
        samples[index] = samples[-1]
        samples.pop()
        self._size -= 1
        if samples:
            heapq.heappush(self._largest, (-len(samples), cell))
        else:
            del self._cells[cell]


def cell_of(one: MeasuredMix) -> Cell:
    """Return the cell of a sample: its service, and rate and jobs by powers of two."""
    jobs = tuple(sorted((name, _power(count)) for name, count, _ in one.jobs))
    return one.service, _power(one.rate + one.other_rate), jobs


def _power(value: float) -> int:
    return math.frexp(value)[1] if value > 0 else -1_000_000

"""SYNTH1 and SYNTH2: the generated jobs of Naghshnejad 2019, section 3.4.1, and random samples of a log's jobs.

Called by the experiment on completion times, its tests and the benchmark. First step of the flow: a seed to an
instance. Invariant: same arguments, same jobs. The paper's intervals are read as intervals of whole numbers.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_lab.offline.job_list import JobList

Synthetic = Literal["synth1", "synth2"]

CAPACITY: Final = 200
"""CPU units of a machine (Naghshnejad 2019, section 3.4)."""
DEMANDS: Final = ((0.75, 1, 99), (0.25, 100, 200))
"""Share, first and last of each range: [1, 100) and [100, 200]."""
SIZES: Final = ((0.70, 1, 100), (0.15, 300, 350), (0.15, 450, 500))
SIZE_MEAN: Final = sum(share * (first + last) / 2 for share, first, last in SIZES)
"""Mean of SYNTH1's sizes, 155.35, which SYNTH2's geometric distribution shares."""


def synthetic_jobs(kind: Synthetic, count: int, seed: int) -> JobList:
    """Return ``count`` jobs of one of the two distributions; both draw demands in the same way."""
    generator = np.random.default_rng([seed, count])
    demands = _mixture(generator, DEMANDS, count)
    sizes = _mixture(generator, SIZES, count) if kind == "synth1" else generator.geometric(1.0 / SIZE_MEAN, count)
    return JobList(sizes.astype(np.int64), demands, CAPACITY)


def sampled_jobs(runs: Integers, demands: Integers, count: int, seed: int) -> tuple[JobList, int]:
    """Draw jobs of a log without repetition, submit times ignored (Naghshnejad 2019, section 3.4.1).

    Returns
    -------
    The instance, and the number of the log's jobs that could not be drawn since they request more than one machine.
    """
    fits = np.flatnonzero(demands <= CAPACITY)
    drawn = np.random.default_rng(seed).choice(fits, size=min(count, len(fits)), replace=False)
    return JobList(runs[drawn].astype(np.int64), demands[drawn].astype(np.int64), CAPACITY), len(runs) - len(fits)


def _mixture(generator: np.random.Generator, parts: tuple[tuple[float, int, int], ...], count: int) -> Integers:
    part = generator.choice(len(parts), count, p=[share for share, _, _ in parts])
    first = np.array([low for _, low, _ in parts])[part]
    last = np.array([high for _, _, high in parts])[part]
    return generator.integers(first, last + 1)

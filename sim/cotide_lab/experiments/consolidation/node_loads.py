"""Applications on nodes as in Wen et al.: loads of nodes first, then applications that add up to each.

Called by the consolidation experiment, its tests and the benchmark. Invariant: same arguments, same instance.

The paper's text leaves two points open, which its Tables I and II decide. The first is "Zero mean and a variable
standard deviation of 0.3", with sizes between 0 and 100. It is read as a normal variable cut to [-1, 1] and mapped to
(0, 100). The lesser half of the nodes then holds 38 a node, which is the transfer that Table I prints for DMNS (4853.39
/ 127). The second is "Applications satisfying the size constraints are generated randomly with uniform distribution".
It is read as a broken stick, each application uniform on the rest of its node's load. BFD and DMAS then transfer as in
Tables I and II; other readings, in `READINGS`, miss them by 10 % and more. Numbers are whole, since the printed means
are multiples of 1/100, as means of 100 instances of whole numbers are.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_lab.consolidation.instance import Instance

Kind = Literal["normal", "uniform"]
Reading = Literal["broken-stick", "up-to-the-load", "up-to-100", "up-to-50"]

KINDS: Final[tuple[Kind, ...]] = ("normal", "uniform")
READINGS: Final[tuple[Reading, ...]] = ("broken-stick", "up-to-the-load", "up-to-100", "up-to-50")
CAPACITY: Final = 100
"""Of every node (section III-A)."""
DEVIATION: Final = 0.3
"""Standard deviation of the normal input, on [-1, 1] (section VII)."""


def generated_instance(kind: Kind, nodes: int, seed: int, reading: Reading = "broken-stick") -> Instance:
    """Return `nodes` nodes with loads of one distribution, split into applications."""
    generator = np.random.default_rng([seed, nodes, KINDS.index(kind), READINGS.index(reading)])
    sizes: list[int] = []
    homes: list[int] = []
    for node, load in enumerate(_loads(generator, kind, nodes)):
        parts = _split(generator, int(load), reading)
        sizes += parts
        homes += [node] * len(parts)
    capacities = np.full((nodes, 1), CAPACITY, np.int64)
    return Instance(np.array(sizes, np.int64).reshape(-1, 1), np.array(homes, np.int64), capacities)


def _loads(generator: np.random.Generator, kind: Kind, nodes: int) -> Integers:
    if kind == "uniform":
        return generator.integers(0, CAPACITY, nodes)
    drawn = generator.normal(0.0, DEVIATION, nodes)
    while (outside := np.abs(drawn) >= 1).any():
        drawn[outside] = generator.normal(0.0, DEVIATION, int(outside.sum()))
    return np.floor((drawn + 1) * CAPACITY / 2).astype(np.int64)


def _split(generator: np.random.Generator, load: int, reading: Reading) -> list[int]:
    parts = []
    left = load
    while left:
        most = {"broken-stick": left, "up-to-the-load": load, "up-to-100": CAPACITY, "up-to-50": CAPACITY // 2}[reading]
        part = min(int(generator.integers(1, most + 1)), left)
        parts.append(part)
        left -= part
    return parts

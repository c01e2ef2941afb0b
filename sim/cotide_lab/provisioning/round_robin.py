"""Weighted round-robin between machine types: which type takes the next task of a class.

Called by the code that places tasks under a capacity plan (Zhang and Boutaba 2014, sec. III: tasks of a class go to
types in proportion to the class's containers there). Smooth: each turn a type earns its weight, and the richest is
chosen and pays one turn. So 2:1 gives a b a, a b a and not a a b. Invariant: after any n turns a type was chosen n
times its share, plus or minus the number of types. A class without any container in a plan goes to the wanted machines,
by how many of its containers each type holds.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.compiled import compiled
from cotide_core.provisioning.programs import Floats


@compiled
def next_type(weights: Floats, credit: Floats) -> int:
    """Return the type that has its turn, and settle ``credit`` in place; -1 where no type has a weight.

    ``weights``: (M,) shares that sum to 1, or zeros. ``credit``: (M,) kept from turn to turn, zeros at first.
    """
    chosen = -1
    for kind in range(len(weights)):
        credit[kind] += weights[kind]
        if weights[kind] > 0.0 and (chosen < 0 or credit[kind] > credit[chosen] + 1e-12):
            chosen = kind
    if chosen >= 0:
        credit[chosen] -= 1.0
    return chosen


def turns(weights: Floats, count: int) -> list[int]:
    """Return the types of the next ``count`` tasks, from no credit."""
    credit = np.zeros(len(weights))
    return [next_type(weights, credit) for _ in range(count)]


def type_shares(containers: Floats, machines: Floats, holds: Floats) -> Floats:
    """Return (S, M): the share of each machine type in the tasks of a class. Rows sum to 1, or are zeros.

    Zeros where a plan has neither a container of the class nor a machine that holds one.

    Parameters
    ----------
    containers : (S, M) of a plan's step, by class and type.
    machines : (M,) that are wanted in it.
    holds : (S, M) containers of a class that a machine of a type holds, >= 0.
    """
    planned = containers.sum(axis=1, keepdims=True) > 0
    parts = np.where(planned, containers, machines[None] * holds)
    total = parts.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(parts, total, out=np.zeros_like(parts), where=total > 0)
    return shares

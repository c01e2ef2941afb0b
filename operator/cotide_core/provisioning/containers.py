"""Container sizes: how much to reserve for a task of a class, so that a group of them fits with a stated probability.

Called by the code that fits task classes. Zhang and Boutaba 2014, sec. III, define a container as a logical allocation
for a task of a class and leave its size open. Tasks of a class differ, and a machine holds a group of n of them. Their
sum has mean n m and standard deviation sqrt(n) s if sizes are independent. So a container of

    m + z(p) s / sqrt(n)

holds the group with probability p, as far as the sum is normal: for n of 10 and more. The fit is worse for single tasks
of skewed classes. Eq. 13 has one size for all machines, so n is that of the smallest machine which hosts the class. A
container is never larger than the largest task seen, nor smaller than the mean.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from cotide_core.errors import InputError
from cotide_core.provisioning.programs import Booleans, Floats

LEAST_PROBABILITY = 0.5
"""Below it a container would be smaller than the mean task."""


def container_sizes(mean: Floats, deviation: Floats, largest: Floats, group: Floats, probability: float) -> Floats:
    """Return (K, R) sizes, in the unit of the tasks.

    Parameters
    ----------
    mean, deviation, largest : (K, R) of the tasks of each class, by resource.
    group : (K,) tasks of the class that share a machine, >= 1; fewer count as one.
    probability : that a group of containers holds its tasks, in [0.5, 1).

    Raises
    ------
    InputError
        When the probability is outside.
    """
    if not LEAST_PROBABILITY <= probability < 1.0:
        raise InputError(f"{probability:g} is not in [{LEAST_PROBABILITY:g}, 1)", field="probability")
    wide = NormalDist().inv_cdf(probability) / np.sqrt(np.maximum(group, 1.0))
    sizes: Floats = np.clip(mean + wide[:, None] * deviation, mean, np.maximum(largest, mean))
    return sizes


def groups_per_machine(
    mean: Floats, deviation: Floats, capacity: Floats, probability: float, hosts: Booleans | None = None
) -> Floats:
    """Return (K,) tasks of a class that the smallest machine which hosts it holds with the probability, >= 1.

    n tasks fill a machine of capacity C where n m + z(p) s sqrt(n) = C, by the scarcest resource. A container for the
    smallest group holds larger groups on larger machines with a higher probability. A machine that holds no single task
    with the probability counts for a class only if every machine is so.

    Parameters
    ----------
    mean, deviation : (K, R) of the tasks. capacity : (M, R) of the machines.
    hosts : (M, K) machines that take a class; None for all.
    """
    wide = NormalDist().inv_cdf(probability) * deviation[None] / 2.0
    room, middle = capacity[:, None, :], mean[None]
    with np.errstate(divide="ignore", invalid="ignore"):
        root = (np.sqrt(wide**2 + middle * room) - wide) / middle
        held = np.where(middle > 0, root**2, np.inf).min(axis=2)
    able = (held >= 1.0) & (True if hosts is None else hosts)
    smallest = np.where(able, held, np.inf).min(axis=0)
    return np.where(np.isfinite(smallest), smallest, 1.0)

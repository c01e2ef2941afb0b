"""`Instance`: applications, their nodes and the capacities of these; `Outcome`: the nodes of the applications
afterwards.

Built by the experiments from generated or recorded loads; read by every algorithm of this package. All amounts are
whole numbers, so that ties and sums are exact. Invariant: an `Outcome` of an algorithm never puts more on a node than
it holds. The exception is a node that was overfull before and received nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats, Integers

LARGEST_AMOUNT: Final = 2**41
"""Largest size and capacity (chosen: 2 TiB in bytes; an amount and a node's number share one int64 in the kernels)."""
MOST_NODES: Final = 2**20
"""Most nodes of an instance (chosen, for the same reason)."""


@dataclass(frozen=True)
class Instance:
    """Applications on nodes.

    Parameters
    ----------
    sizes : (M, R) what each application needs of R resources, from 0 up, in any whole unit.
    homes : (M,) the node of each, from 0 to N - 1.
    capacities : (N, R) the capacity of each node, at least 1.
    weights : (M,) cost of moving each (bytes, or 1 for counting moves); the first resource's size when left out.

    Raises
    ------
    InputError
        When shapes do not agree, a number is out of its range, or an application is larger than its node.
    """

    sizes: Integers
    homes: Integers
    capacities: Integers
    weights: Integers | None = None

    def __post_init__(self) -> None:
        sizes, homes, capacities = self.sizes, self.homes, self.capacities
        if sizes.ndim != 2 or capacities.ndim != 2 or sizes.shape[1] != capacities.shape[1] or not sizes.shape[1]:
            raise InputError("wants (M, R) sizes and (N, R) capacities of the same resources", field="sizes")
        if homes.shape != sizes.shape[:1] or (self.weights is not None and self.weights.shape != homes.shape):
            raise InputError("wants one home and one weight for each application", field="homes")
        if not 1 <= len(capacities) <= MOST_NODES:
            raise InputError(f"wants 1 to {MOST_NODES} nodes, not {len(capacities)}", field="capacities")
        if capacities.min() < 1 or capacities.max() > LARGEST_AMOUNT:
            raise InputError(f"wants amounts from 1 to {LARGEST_AMOUNT}", field="capacities")
        if len(sizes):
            if sizes.min() < 0 or sizes.max() > LARGEST_AMOUNT:
                raise InputError(f"wants amounts from 0 to {LARGEST_AMOUNT}", field="sizes")
            if homes.min() < 0 or homes.max() >= len(capacities):
                raise InputError(f"names a node outside 0 to {len(capacities) - 1}", field="homes")
            if (sizes > capacities[homes]).any():
                raise InputError("has an application that is larger than its own node", field="sizes")
        if self.weights is not None and len(self.weights) and not 0 <= self.weights.min() <= LARGEST_AMOUNT:
            raise InputError("wants weights of 0 and more", field="weights")

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.capacities)

    @property
    def applications(self) -> int:
        """M."""
        return len(self.homes)

    @cached_property
    def moving(self) -> Integers:
        """(M,) what moving each application costs."""
        return np.ascontiguousarray(self.sizes[:, 0]) if self.weights is None else self.weights

    @cached_property
    def loads(self) -> Integers:
        """(N, R) what the applications of each node need together."""
        loads = np.zeros(self.capacities.shape, np.int64)
        np.add.at(loads, self.homes, self.sizes)
        return loads

    @cached_property
    def node_weights(self) -> Integers:
        """(N,) what emptying each node costs."""
        found = np.zeros(self.nodes, np.int64)
        np.add.at(found, self.homes, self.moving)
        return found

    @cached_property
    def load_shares(self) -> Floats:
        """(N,) the fullest resource of each node, as a share of its capacity."""
        return np.asarray((self.loads / self.capacities).max(axis=1), np.float64)

    @cached_property
    def size_shares(self) -> Floats:
        """(M,) the largest resource of each application, as a share of the largest node's."""
        return np.asarray((self.sizes / self.capacities.max(axis=0)).max(axis=1), np.float64)

    @cached_property
    def is_uniform(self) -> bool:
        """Whether there is one resource, with equal nodes that are not overfull: the paper's case."""
        same = self.capacities.shape[1] == 1 and bool((self.capacities == self.capacities[0]).all())
        return same and bool((self.loads <= self.capacities).all()) and self.weights is None

    @property
    def nodes_used(self) -> int:
        """Nodes that have an application."""
        return int(np.count_nonzero(np.bincount(self.homes, minlength=self.nodes)))

    @cached_property
    def fewest_by_volume(self) -> int:
        """Least number of nodes of any packing: the largest ones until they hold the sum of each resource (eq. 2)."""
        if not self.applications:
            return 0
        largest_first = np.cumsum(-np.sort(-self.capacities, axis=0), axis=0, dtype=np.float64)
        totals = self.sizes.sum(axis=0, dtype=np.float64)
        # Above 2**53 a sum of floats may be off by a few units: the bound allows for them.
        held = largest_first * (1 + 1e-12)
        wanted = [int(np.searchsorted(held[:, column], totals[column])) for column in range(len(totals))]
        return min(max(1, max(wanted) + 1 if max(totals) > 0 else 1), self.nodes)

    def outcome(self, targets: Integers, drained: int = -1) -> Outcome:
        """Describe a placement of all applications."""
        used = int(np.count_nonzero(np.bincount(targets, minlength=self.nodes))) if len(targets) else 0
        moved = targets != self.homes
        return Outcome(targets, used, int(self.moving[moved].sum()), int(np.count_nonzero(moved)), drained)

    def part(self, applications: Integers, nodes: Integers) -> Instance:
        """Cut out some nodes, by number, with the applications on them; both are renumbered in the order given."""
        number = np.full(self.nodes, -1, np.int64)
        number[nodes] = np.arange(len(nodes))
        weights = None if self.weights is None else self.weights[applications]
        return Instance(self.sizes[applications], number[self.homes[applications]], self.capacities[nodes], weights)

    def moved_to(self, targets: Integers) -> Instance:
        """Return the same applications where an outcome puts them."""
        return Instance(self.sizes, targets, self.capacities, self.weights)


@dataclass(frozen=True)
class Outcome:
    """A placement, and its cost.

    Attributes
    ----------
    targets : (M,) the node of each application.
    nodes_used : nodes with an application (the paper's NU_cost).
    transfer : summed weight of the applications that change their node (DT_cost with c = 1).
    moves : applications that change their node.
    drained : the K of the method that found it; -1 if it has no K.
    """

    targets: Integers
    nodes_used: int
    transfer: int
    moves: int
    drained: int = -1

    @property
    def cost(self) -> tuple[int, int]:
        """Nodes first, then transfer: less is better."""
        return self.nodes_used, self.transfer


def first_overfull(instance: Instance, targets: Integers) -> int:
    """Return a node that received something and holds more than it can; -1 if there is none."""
    loads = np.zeros(instance.capacities.shape, np.int64)
    np.add.at(loads, targets, instance.sizes)
    received = np.zeros(instance.nodes, np.bool_)
    received[targets[targets != instance.homes]] = True
    over = received & (loads > instance.capacities).any(axis=1)
    return int(np.argmax(over)) if over.any() else -1

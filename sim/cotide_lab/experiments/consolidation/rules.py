"""Rules of consolidation over time: each rule's size of a machine, and its moves.

Played by `traces`. A rule sees use up to the slot before, never the slot it decides for. `Requests` and `LastUse`
consolidate once an hour, or act as ours does (`act`). `Thresholds` looks at every slot, as in Beloglazov and Buyya
2012; ours is `joint_peaks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_lab.consolidation.bfd import bfd
from cotide_lab.consolidation.dmns import dmns
from cotide_lab.consolidation.instance import Instance, Outcome

HOUR: Final = 12
"""Slots of an hour."""
HOT: Final = 0.9
"""Share of its cpu above which a host is eased at every slot (chosen)."""
ROOM: Final = 0.85
"""A host is filled up to this share of its cpu when another is eased (chosen)."""
QUARTER: Final = 3
"""Slots of a quarter of an hour, after which rules with our actions consolidate (chosen)."""
BUDGET: Final = 12
"""Machines that such a plan moves at most for each host that it frees (chosen)."""
NO_BUDGET: Final = 1_000_000
"""More machines than any load has."""


@dataclass
class Cluster:
    """The data that a rule may read.

    Attributes
    ----------
    asked : (M, 2) requests. hosts : (N, 2). used : (M, S) measured use; a rule may read only slots before `slot`.
    on : (M,) host of each machine, -1 where it does not run.
    """

    asked: Integers
    hosts: Integers
    used: Floats
    on: Integers
    slot: int = 0

    @property
    def running(self) -> Integers:
        """Numbers of the machines that run."""
        return np.flatnonzero(self.on >= 0)

    def past(self, slots: int) -> Floats:
        """Return the last slots' use; nan where a machine did not run."""
        return self.used[:, max(0, self.slot - slots) : self.slot]


class Rule(Protocol):
    """Decides sizes and moves."""

    name: str

    def sizes(self, cluster: Cluster) -> Integers:
        """Return the (M,) cpu that each machine counts with."""
        ...

    def moves(self, cluster: Cluster) -> Integers:
        """Return the (M,) target hosts of the machines."""
        ...

    def learn(self, overloaded: float) -> None:
        """Record the share of used hosts that were overloaded in a slot."""
        ...


def instance_of(cluster: Cluster, sizes: Integers, hosts: Integers) -> tuple[Instance, Integers, Integers]:
    """Cut out the running machines on the hosts in use; an overfull host counts as just full."""
    running = cluster.running
    used = np.unique(cluster.on[running])
    number = np.full(len(hosts), -1)
    number[used] = np.arange(len(used))
    homes = number[cluster.on[running]]
    # A machine counts with no more than its own host holds.
    table = np.minimum(np.column_stack([sizes[running], cluster.asked[running, 1]]), hosts[used][homes])
    instance = Instance(table.astype(np.int64), homes.astype(np.int64), hosts[used], np.ones(len(running), np.int64))
    return instance, running, used


def consolidated(cluster: Cluster, sizes: Integers, hosts: Integers, anew: bool = False) -> Integers:
    """Return the hosts after DMNS or BFD on some sizes."""
    on = cluster.on.copy()
    if not len(cluster.running):
        return on
    instance, running, used = instance_of(cluster, sizes, hosts)
    found: Outcome = bfd(instance) if anew else dmns(instance)
    on[running] = used[found.targets]
    return on


def best_host(loads: Integers, hosts: Integers, size: Integers, allowed: Booleans) -> int:
    """Return the fullest used host with room, else the first empty one; -1 when there is none."""
    left = hosts - loads - size
    fits = (left >= 0).all(axis=1) & allowed
    if not fits.any():
        return -1
    share = (left / hosts).min(axis=1)
    used = fits & (loads > 0).any(axis=1)
    return int(np.argmin(np.where(used, share, 2.0))) if used.any() else int(np.argmax(fits))


def loads_of(cluster: Cluster, sizes: Integers) -> Integers:
    """Return the (N, 2) cpu and memory that counts on each host."""
    loads = np.zeros(cluster.hosts.shape, np.int64)
    running = cluster.running
    np.add.at(loads, cluster.on[running], np.column_stack([sizes[running], cluster.asked[running, 1]]))
    return loads


@dataclass
class Still:
    """No consolidation: machines stay on the hosts of best fit on requests."""

    name: str = "none"

    def sizes(self, cluster: Cluster) -> Integers:
        """Return the requests."""
        return cluster.asked[:, 0]

    def moves(self, cluster: Cluster) -> Integers:
        """Return them where they are."""
        return cluster.on

    def learn(self, overloaded: float) -> None:
        """Learn nothing."""


@dataclass
class Requests(Still):
    """DMNS on requests, once an hour; ``acting``: with the actions of ours (`act`)."""

    acting: bool = False

    def __post_init__(self) -> None:
        self.name = "DMNS on requests, our actions" if self.acting else "DMNS on requests"

    def moves(self, cluster: Cluster) -> Integers:
        """Consolidate on the hour, or act as ours does."""
        if self.acting:
            return act(cluster, self.sizes(cluster), self._packed)
        return cluster.on if cluster.slot % HOUR else self._packed(cluster)

    def _packed(self, cluster: Cluster) -> Integers:
        return consolidated(cluster, self.sizes(cluster), cluster.hosts)


@dataclass
class LastUse(Still):
    """DMNS (or BFD from scratch) once an hour on the last hour's largest use and a margin: no forecast.

    ``acting``: with the actions of ours (`act`). BFD then takes each plan that frees a host, since it moves too many
    machines for the budget of ours.
    """

    margin: float = 0.1
    anew: bool = False
    acting: bool = False

    def __post_init__(self) -> None:
        self.name = f"{'BFD each time' if self.anew else 'last use'}{', our actions' if self.acting else ''}"

    def sizes(self, cluster: Cluster) -> Integers:
        """Return the largest use of the last hour with the margin, not above the request; without a past, that."""
        past = cluster.past(HOUR)
        largest = np.max(np.nan_to_num(past, nan=-1.0), axis=1, initial=-1.0)
        found = np.ceil(largest * (1 + self.margin))
        return np.where(largest < 0, cluster.asked[:, 0], np.clip(found, 1, cluster.asked[:, 0])).astype(np.int64)

    def moves(self, cluster: Cluster) -> Integers:
        """Consolidate on the hour, or act as ours does."""
        if self.acting:
            return act(cluster, self.sizes(cluster), self._packed, NO_BUDGET if self.anew else BUDGET)
        return cluster.on if cluster.slot % HOUR else self._packed(cluster)

    def _packed(self, cluster: Cluster) -> Integers:
        return consolidated(cluster, self.sizes(cluster), cluster.hosts, self.anew)


@dataclass
class Thresholds(Still):
    """A static threshold with minimum migration time: ease hosts above it, empty the least used one that can be.

    Beloglazov and Buyya 2012: overload by threshold (THR 0.8); the machine with the least memory moves first, placed by
    best fit (power-aware best fit, with hosts of like efficiency). Then hosts are emptied, least used first.
    """

    threshold: float = 0.8
    name: str = "thresholds"

    def sizes(self, cluster: Cluster) -> Integers:
        """Return the last use; without a past, the request."""
        past = cluster.past(1)
        if not past.shape[1]:
            return cluster.asked[:, 0]
        return np.where(np.isnan(past[:, 0]), cluster.asked[:, 0], np.ceil(past[:, 0])).astype(np.int64)

    def moves(self, cluster: Cluster) -> Integers:
        """Ease, then empty."""
        sizes = self.sizes(cluster)
        limit = cluster.hosts * np.array([self.threshold, 1.0])
        before = cluster.on
        cluster.on = before.copy()
        eased = ease(cluster, sizes, limit, limit, cluster.asked[:, 1])
        cluster.on = eased
        loads = loads_of(cluster, sizes)
        used = np.flatnonzero((loads > 0).any(axis=1))
        receiving: set[int] = set(eased[eased != before].tolist())
        for host in used[np.argsort(loads[used, 0] / cluster.hosts[used, 0], kind="stable")]:
            if int(host) in receiving:
                continue
            moved = _emptied(cluster, sizes, limit.astype(np.int64), int(host))
            if moved is None:
                continue
            receiving.update(moved[moved != cluster.on].tolist())
            cluster.on = moved
        found, cluster.on = cluster.on, before
        return found


def ease(cluster: Cluster, sizes: Integers, limit: Floats, room: Floats | Integers, first: Integers) -> Integers:
    """Move machines off hosts above a limit, those with the least `first` first, until each is below it.

    ``room``: (N, 2) filling limit of a host that receives machines.
    """
    on = cluster.on.copy()
    loads = loads_of(cluster, sizes)
    for host in np.flatnonzero((loads > limit).any(axis=1)):
        members = np.flatnonzero(on == host)
        for machine in members[np.argsort(first[members], kind="stable")]:
            if (loads[host] <= limit[host]).all() or np.count_nonzero(on == host) == 1:
                break
            size = np.array([sizes[machine], cluster.asked[machine, 1]])
            allowed = np.ones(len(loads), np.bool_)
            allowed[host] = False
            target = best_host(loads, room.astype(np.int64), size, allowed)
            if target >= 0:
                loads[host] -= size
                loads[target] += size
                on[machine] = target
    return on


def eased(cluster: Cluster, unseen: Integers, hot: float = HOT) -> Integers:
    """Return the hosts after easing those with a last use above ``hot``; a machine without a past counts ``unseen``.

    The machine that used most moves first.
    """
    past = cluster.past(1)
    if not past.shape[1]:
        return cluster.on
    last = np.where(np.isnan(past[:, 0]), unseen, np.ceil(past[:, 0])).astype(np.int64)
    use = np.zeros(len(cluster.hosts))
    running = cluster.running
    np.add.at(use, cluster.on[running], last[running])
    near = use > hot * cluster.hosts[:, 0]
    limit = np.where(near[:, None], cluster.hosts * np.array([hot, 1.0]), 2.0**40)
    return ease(cluster, last, limit, cluster.hosts * np.array([ROOM, 1.0]), -last)


def act(cluster: Cluster, sizes: Integers, packed: Callable[[Cluster], Integers], budget: int = BUDGET) -> Integers:
    """Return the hosts after the actions of ours: ease at every slot, consolidate each quarter hour where it pays."""
    before = cluster.on
    cluster.on = eased(cluster, sizes)
    if cluster.slot % QUARTER == 0 and cluster.slot:
        cluster.on = if_it_pays(cluster.on, packed(cluster), budget)
    found, cluster.on = cluster.on, before
    return found


def if_it_pays(on: Integers, planned: Integers, budget: int = BUDGET) -> Integers:
    """Return the hosts of a plan that frees a host and moves no more than the budget for each; else the present
    ones."""
    running = on >= 0
    freed = len(np.unique(on[running])) - len(np.unique(planned[running]))
    moves = np.count_nonzero(on != planned)
    return planned if freed > 0 and moves <= budget * freed else on


def _emptied(cluster: Cluster, sizes: Integers, limit: Integers, host: int) -> Integers | None:
    """Return the hosts with one emptied into used ones; None when not all of it fits."""
    on = cluster.on.copy()
    loads = loads_of(cluster, sizes)
    allowed: Booleans = np.asarray((loads > 0).any(axis=1))
    allowed[host] = False
    for machine in np.flatnonzero(on == host):
        size = np.array([sizes[machine], cluster.asked[machine, 1]])
        target = best_host(loads, limit, size, allowed)
        if target < 0:
            return None
        loads[target] += size
        on[machine] = target
    return on

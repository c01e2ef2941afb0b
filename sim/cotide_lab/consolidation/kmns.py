"""KMNS(K): the K least loaded nodes are emptied into the others by best fit, largest first (Wen et al., Algorithm 1).

Called by `dmns`, `dmas` and `bfd`, which try several K or another order, and by the experiments. The prose of V-A names
"the first K largest nodes"; Algorithm 1 takes the first K of the ascending order, and so does this module. One trial
gives up as soon as it can't be better than the best known one, which makes trying every K cheap.

Two forms. With one resource and equal nodes, as in the paper, an application that fits nowhere opens a new node. New
nodes are matched to emptied ones afterwards (`matched`). With several resources or unequal nodes a new node must be
some emptied node from the start. It is the application's own when that is still closed, so that it does not move.
Otherwise it is the closed one that it fills most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.consolidation.best_fit import (
    NUMBER_BITS,
    NUMBER_MASK,
    UNTOUCHED,
    USED,
    Rooms,
    add_room,
    put_best,
    rooms_of,
)
from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.vector_trials import NO_LIMIT, VectorTrials


class Drain(NamedTuple):
    """The common data of all trials of one instance; ranks are positions in the order of emptying.

    Attributes
    ----------
    sizes : (M,) sizes, largest first.
    ranks : (M,) rank of each one's node.
    weights : (N,) load of the node of each rank.
    keys : (N,) rooms and ranks, as `best_fit` keeps them.
    capacity : of every node.
    """

    sizes: Integers
    ranks: Integers
    weights: Integers
    keys: Integers
    capacity: int


class Scratch(NamedTuple):
    """Arrays that a trial works in, made once.

    ``chosen``: (M,) the node of each item of the trial: a rank, or N + the number of an added node; -1 where it stays.
    Entries are (added node, source, amount), chained by added node; ``top`` is the largest amount of each.
    """

    rooms: Rooms
    chosen: Integers
    head: Integers
    top: Integers
    follows: Integers
    source: Integers
    amount: Integers
    node: Integers


def prepared(instance: Instance, order: Integers) -> tuple[Drain, Scratch, Integers]:
    """Lay an instance out for trials; returns the application of each item, too."""
    count, nodes = instance.applications, instance.nodes
    sizes = instance.sizes[:, 0]
    items = np.lexsort((np.arange(count), -sizes))
    rank = np.empty(nodes, np.int64)
    rank[order] = np.arange(nodes)
    loads = np.ascontiguousarray(instance.loads[order, 0])
    capacity = int(instance.capacities[0, 0])
    keys = np.sort(((capacity - loads) << NUMBER_BITS) + np.arange(nodes))
    drain = Drain(np.ascontiguousarray(sizes[items]), rank[instance.homes[items]], loads, keys, capacity)
    room = [np.zeros(max(count, 1), np.int64) for _ in range(4)]
    scratch = Scratch(
        rooms=rooms_of(nodes),
        chosen=np.full(max(count, 1), -1, np.int64),
        head=np.zeros(nodes + 1, np.int64),
        top=np.zeros(nodes + 1, np.int64),
        follows=room[0], source=room[1], amount=room[2], node=room[3],
    )  # fmt: skip
    return drain, scratch, items


@compiled
def trial(drain: Drain, scratch: Scratch, drained: int, fewest: int, best_used: int, best_transfer: int) -> Integers:
    """Empty the first `drained` ranks; gives up once it can't come below (best_used, best_transfer).

    Returns
    -------
    (4,) nodes used, least transfer that is still possible, number of entries, items looked at. Nodes used is -1 when it
    gave up. The transfer is exact when every added node can be matched to the source that gave it most.
    """
    sizes, ranks, weights, capacity = drain.sizes, drain.ranks, drain.weights, drain.capacity
    nodes = weights.shape[0]
    rooms, chosen, head, top = scratch.rooms, scratch.chosen, scratch.head, scratch.top
    smallest = sizes[sizes.shape[0] - 1] if sizes.shape[0] else 0
    usable = _receivers(drain.keys, rooms, drained, smallest)
    used = 0
    for rank in range(drained, nodes):
        used += weights[rank] > 0
    total = 0
    for rank in range(drained):
        total += weights[rank]
    answer = np.zeros(4, np.int64)
    answer[0] = -1
    kept, left, added, entries = 0, total, 0, 0
    for item in range(sizes.shape[0]):
        source = ranks[item]
        if source >= drained:
            continue
        answer[3] += 1
        size = sizes[item]
        left -= size
        put = put_best(rooms, size, smallest)
        node = put & NUMBER_MASK
        if put < 0:
            node = nodes + added
            put = ((capacity - size) << NUMBER_BITS) + node
            add_room(rooms, put, smallest)
            usable += capacity
            head[added] = -1
            top[added] = 0
            added += 1
            used += 1
        elif node < nodes and weights[node] == 0:
            weights[node] = -1
            used += 1
        room = put >> NUMBER_BITS
        usable -= size if room >= smallest else size + room
        chosen[item] = node
        if node >= nodes:
            more, entries = _note(scratch, node - nodes, source, size, entries)
            kept += more
        # The remaining items can at most stay where they are; items without room in the nodes so far need more nodes.
        least = max(used, fewest)
        if left > usable:
            least = max(least, used + (left - usable + capacity - 1) // capacity)
        if least > best_used or (least == best_used and total - kept - left >= best_transfer):
            break
    else:
        answer[0] = used
    for rank in range(drained, nodes):
        weights[rank] = max(weights[rank], 0)
    answer[1] = total - kept - left
    answer[2] = entries
    return answer


@compiled
def _receivers(every: Integers, rooms: Rooms, drained: int, smallest: int) -> int:
    """Begin with the nodes that stay and have room for anything; return their room."""
    count, usable = 0, 0
    for at in range(every.shape[0]):
        room = every[at] >> NUMBER_BITS
        if every[at] & NUMBER_MASK >= drained and room >= smallest:
            usable += room
            rooms.untouched[count] = every[at]
            rooms.links[count] = count
            count += 1
    rooms.links[count] = count
    rooms.counts[UNTOUCHED], rooms.counts[USED] = count, 0
    return usable


@compiled
def _note(scratch: Scratch, added: int, source: int, size: int, entries: int) -> tuple[int, int]:
    """Note what a source gave to an added node; return by how much its largest amount grew, and the entries."""
    entry = scratch.head[added]
    while entry >= 0 and scratch.source[entry] != source:
        entry = scratch.follows[entry]
    if entry < 0:
        entry = entries
        entries += 1
        scratch.source[entry], scratch.amount[entry], scratch.node[entry] = source, 0, added
        scratch.follows[entry] = scratch.head[added]
        scratch.head[added] = entry
    scratch.amount[entry] += size
    more = max(0, scratch.amount[entry] - scratch.top[added])
    scratch.top[added] += more
    return more, entries


def matched(scratch: Scratch, entries: int, drained: int) -> tuple[Integers, int]:
    """Match added nodes to emptied ones, the largest amount first; each added node to the source that gave it most.

    Returns the rank that each added node becomes, and the amount that stays where it is in this way. Where two added
    nodes got most from the same source, the second takes its next one. An added node without any source left takes a
    free rank, the last (most loaded) first.
    """
    amounts, sources, nodes = scratch.amount[:entries], scratch.source[:entries], scratch.node[:entries]
    becomes = np.full(int(nodes.max()) + 1 if entries else 0, -1, np.int64)
    taken = np.zeros(drained, np.bool_)
    stays = 0
    for entry in np.lexsort((sources, nodes, -amounts)):
        if becomes[nodes[entry]] < 0 and not taken[sources[entry]]:
            becomes[nodes[entry]] = sources[entry]
            taken[sources[entry]] = True
            stays += int(amounts[entry])
    free = iter(np.flatnonzero(~taken)[::-1])
    for node in np.flatnonzero(becomes < 0):
        becomes[node] = next(free)
    return becomes, stays


def read_trial(instance: Instance, order: Integers, trialled: TrialState, drained: int, entries: int) -> Outcome:
    """Return the outcome of the last trial."""
    drain, scratch, items = trialled
    becomes, _ = matched(scratch, entries, drained)
    targets = instance.homes.copy()
    moving = np.flatnonzero(drain.ranks < drained)
    chosen = scratch.chosen[moving]
    new = chosen >= instance.nodes
    chosen[new] = becomes[chosen[new] - instance.nodes]
    targets[items[moving]] = order[chosen]
    return instance.outcome(targets, drained)


TrialState = tuple[Drain, Scratch, Integers]


def by_load(instance: Instance) -> Integers:
    """Return the nodes in order of their load, least first: the order of KMNS and DMNS."""
    shares: Floats = instance.load_shares
    return np.asarray(np.lexsort((np.arange(instance.nodes), shares)), np.int64)


def kmns(instance: Instance, drained: int, order: NDArray[np.int64] | None = None) -> Outcome:
    """Empty `drained` nodes (the paper's K), the least loaded first or in the given order (Wen et al., Algorithm 1).

    Raises
    ------
    InputError
        When K is not from 0 to N.
    """
    if not 0 <= drained <= instance.nodes:
        raise InputError(f"wants a number of nodes from 0 to {instance.nodes}, not {drained}", field="K")
    order = by_load(instance) if order is None else order
    if not instance.is_uniform:
        found = VectorTrials(instance, order).run(drained)
        # With unequal nodes an application may find no node though each had one: then nothing is moved.
        return instance.outcome(instance.homes.copy(), drained) if found is None else found
    state = prepared(instance, order)
    answer = trial(state[0], state[1], drained, 0, NO_LIMIT, NO_LIMIT)
    if answer[0] > instance.nodes:  # best fit may need one more node than were emptied
        return instance.outcome(instance.homes.copy(), drained)
    return read_trial(instance, order, state, drained, int(answer[2]))

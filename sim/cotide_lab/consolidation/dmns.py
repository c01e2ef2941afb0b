"""DMNS: KMNS for every K from 0 to N, the fewest nodes and then the least transfer (Wen et al., Algorithm 2).

Called by `hsa`, the transfer-aware plan and the experiments. The answer is that of trying every K in full, the smallest
of equal ones. The work is a small part of N packings, for three reasons, each exact:

- the N - K nodes that stay are used, so K below N - (fewest nodes known) can't win;
- no K can move less than what the N - (nodes used) lightest nodes hold, so an outcome with that transfer ends the
  search;
- a trial ends as soon as its transfer can't come below the best. The transfer is at least (emptied) - (most that can
  still stay), and the largest applications come first, so this shows early.

``docs/results/consolidation.json`` plots items looked at and time against N.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.kmns import by_load, matched, prepared, read_trial, trial
from cotide_lab.consolidation.vector_trials import VectorTrials


@dataclass(frozen=True)
class Search:
    """The course of a search over K.

    Attributes
    ----------
    outcome : the best.
    tried : numbers K with a trial.
    finished : of these, trials that ran to their end.
    items : applications that were looked at in all; a full packing looks at M of them.
    """

    outcome: Outcome
    tried: int
    finished: int
    items: int


def dmns(instance: Instance) -> Outcome:
    """Return the best of KMNS(0) to KMNS(N), nodes sorted by load."""
    return search(instance, by_load(instance)).outcome


def search(instance: Instance, order: Integers) -> Search:
    """Try every K in one order of emptying; the module's docstring explains what is left out, and why that is exact."""
    if not instance.is_uniform:
        return _search_vectors(instance, order)
    state = prepared(instance, order)
    drain, scratch, _ = state
    nodes, fewest = instance.nodes, instance.fewest_by_volume
    occupied = np.append(np.cumsum((drain.weights > 0)[::-1])[::-1], 0)
    lightest = np.concatenate([[0], np.cumsum(np.sort(drain.weights))])
    best = instance.outcome(instance.homes.copy(), 0)
    tried = finished = items = 0
    order_of_trials = [nodes, *range(1, nodes)]
    for drained in order_of_trials:
        used, transfer = best.cost
        if occupied[drained] > used:
            continue
        if used == fewest and transfer <= lightest[nodes - fewest] and drained > best.drained:
            # Later outcomes can at best be equal, and have the larger K.
            break
        # Equal cost counts as better for a smaller K: the printed loop keeps the first.
        limit = transfer + (drained < best.drained)
        answer = trial(drain, scratch, drained, fewest, used, limit)
        tried, items = tried + 1, items + int(answer[3])
        if answer[0] < 0:
            continue
        finished += 1
        _, stays = matched(scratch, int(answer[2]), drained)
        emptied = int(drain.weights[:drained].sum())
        if (int(answer[0]), emptied - stays) < (used, limit):
            best = read_trial(instance, order, state, drained, int(answer[2]))
    return Search(best, tried, finished, items)


def _search_vectors(instance: Instance, order: Integers) -> Search:
    trials = VectorTrials(instance, order)
    nodes, fewest = instance.nodes, instance.fewest_by_volume
    holds = np.bincount(instance.homes, minlength=nodes)[order] > 0
    occupied = np.append(np.cumsum(holds[::-1])[::-1], 0)
    lightest = np.concatenate([[0], np.cumsum(np.sort(instance.node_weights))])
    best = instance.outcome(instance.homes.copy(), 0)
    tried = finished = 0
    for drained in [nodes, *range(1, nodes)]:
        used, transfer = best.cost
        if occupied[drained] > used:
            continue
        if used == fewest and transfer <= lightest[nodes - fewest] and drained > best.drained:
            break
        found = trials.run(drained, used, transfer + (drained < best.drained))
        tried += 1
        if found is None:
            continue
        finished += 1
        if found.cost < (used, transfer + (drained < best.drained)):
            best = found
    return Search(best, tried, finished, 0)

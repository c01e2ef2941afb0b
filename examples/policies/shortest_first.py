"""Shortest job first, as a policy of one's own: `cotide simulate --trace LOG --policy-file shortest_first.py`.

The simplest form: one function. It is called at each moment at which jobs were submitted or ended, and answers with the
indices in the queue of the jobs to start now.
"""

import numpy as np


def choose(queue, machine):
    """Shortest forecast first, nobody overtakes."""
    chosen, free = [], machine.free
    # `queue` is in order of submission, so a stable sort lets the older of two equal jobs go first.
    for index in np.argsort(queue.forecast, kind="stable"):
        if queue.demand[index] > free:
            break
        chosen.append(index)
        free -= queue.demand[index]
    return chosen

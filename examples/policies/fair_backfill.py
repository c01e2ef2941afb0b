"""EASY backfilling behind a fair queue: who has used the machine least goes first.

The form with memory: one object of the class serves a whole replay. `finished` is called when a job ends, with the run
time that is then known. Run it with `cotide simulate --trace LOG --policy easy --policy-file fair_backfill.py`.
"""

import numpy as np


class Policy:
    """Least-served user first, the others backfill behind the first job's reservation."""

    def __init__(self):
        self.used = {}

    def finished(self, job, run):
        """Note the processor seconds of a job's user."""
        self.used[job.user] = self.used.get(job.user, 0) + job.demand * run

    def choose(self, queue, machine):
        """Start the first jobs while they fit, then whatever leaves the first blocked one's start alone."""
        served = np.array([self.used.get(user, 0) for user in queue.user])
        chosen, free, now = [], machine.free, machine.now
        ends = list(zip(machine.planned_end.tolist(), machine.demand.tolist(), strict=True))
        shadow = extra = None
        for index in np.argsort(served, kind="stable").tolist():
            demand, forecast = int(queue.demand[index]), int(queue.forecast[index])
            if shadow is None and demand > free:
                shadow, extra = reservation(sorted(ends), free, demand)
            elif demand <= free and (shadow is None or now + forecast <= shadow or demand <= extra):
                if shadow is not None and now + forecast > shadow:
                    extra -= demand
                chosen.append(index)
                free -= demand
                ends.append((now + forecast, demand))
        return chosen


def reservation(ends, free, demand):
    """Return when so many processors are free at the latest, and how many are left over then."""
    time = None
    for end, amount in ends:
        if free >= demand and end != time:
            break
        free, time = free + amount, end
    return time, free - demand

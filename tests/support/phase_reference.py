"""Algorithm 2 of Zhang and Boutaba 2014 as it is printed, on plain objects: slow, and one candidate for each task.

Imported by the tests of `cotide_lab.phases`, which hold the array kernel against it. It knows neither the bound of
pauses nor kept nodes: tests compare where neither is reached.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from cotide_lab.phases.utility import DISTANCE

Need = tuple[int, ...]


@dataclass
class Job:
    number: int
    tasks: list[Task] = field(default_factory=list)


@dataclass(eq=False)
class Task:
    number: int
    job: Job
    group: int
    phases: list[Need]
    phase: int = 0
    state: str = "waiting"
    node: int | None = None
    paused_at: float = 0.0

    def holds(self) -> Need:
        if self.state == "running":
            return self.phases[self.phase]
        if self.state == "paused":  # cpu, the first resource, is given back
            before, after = self.phases[self.phase - 1], self.phases[self.phase]
            return (0, *(min(one, other) for one, other in zip(before[1:], after[1:], strict=True)))
        return tuple(0 for _ in self.phases[0])

    def most(self) -> Need:
        return tuple(max(column) for column in zip(*self.phases[self.phase :], strict=True))


def share(job: Job, total: Need) -> float:
    held = [sum(column) for column in zip(*(task.holds() for task in job.tasks), strict=True)]
    return max(one / there for one, there in zip(held, total, strict=True))


def free(tasks: list[Task], capacity: Need) -> list[int]:
    held = (
        [sum(column) for column in zip(*(task.holds() for task in tasks), strict=True)]
        if tasks
        else [0] * len(capacity)
    )
    return [there - one for there, one in zip(capacity, held, strict=True)]


def can_all_end(tasks: list[Task], capacity: Need) -> bool:
    """Whether some order of the tasks lets each have the most it needs: tried order by order."""
    for order in itertools.permutations(tasks):
        left = free(tasks, capacity)
        for task in order:
            most, own = task.most(), task.holds()
            # Cpu comes back from each task by itself, when it pauses or ends.
            if most[0] > capacity[0] or any(most[at] - own[at] > left[at] for at in range(1, len(most))):
                break
            left = [room + back for room, back in zip(left, own, strict=True)]
        else:
            return True
    return False


def report(order: list[Task], jobs: list[Job], capacity: Need, now: float, weights: tuple[float, ...]) -> list[int]:
    """Return the tasks that the printed algorithm selects on the only node, in its order; they run when it returns.

    Of equal utilities the first of ``order`` wins, which holds the tasks that wait or are on the node.
    """
    alpha, square, constant, floor, epsilon, measure = weights
    node, total = 0, capacity
    unfinished = sum(any(task.state != "done" for task in job.tasks) for job in jobs)
    tasks = [task for job in jobs for task in job.tasks]
    candidates = [task for task in order if task.state in ("waiting", "paused")]
    selected = []
    while candidates:
        weighed = []
        for task in list(candidates):
            before = share(task.job, total)
            old = (task.state, task.node)
            task.state, task.node = "running", node
            here = [one for one in tasks if one.node == node and one.state in ("running", "paused")]
            possible = min(free(here, capacity)) >= 0 and can_all_end(here, capacity)
            after = share(task.job, total)
            task.state, task.node = old
            if not possible:
                candidates.remove(task)
                continue
            fairness = math.log((after * unfinished + floor) / (before * unfinished + floor))
            if measure == DISTANCE:
                fairness = abs(before * unfinished - 1) - abs(after * unfinished - 1)
            if task.state == "waiting":
                group = [one for one in task.job.tasks if one.group == task.group]
                remaining = sum(one.state != "done" for one in group)
                current = sum(one.state in ("running", "paused") for one in group)
                gain = remaining / max(current, epsilon) - remaining / (current + 1)
            else:
                gain = square * (now - task.paused_at) ** 2 + constant
            worth = fairness + alpha * gain
            if worth <= 0:
                candidates.remove(task)
                continue
            weighed.append((worth, task))
        if weighed:
            best = max(weighed, key=lambda pair: pair[0])[1]
            best.state, best.node = "running", node
            candidates.remove(best)
            selected.append(best.number)
    return selected

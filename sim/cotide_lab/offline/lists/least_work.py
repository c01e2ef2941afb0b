"""LW: each job goes to the machine with the least work so far (Naghshnejad 2019, section 3.2.2).

Called by `list_scheduling`. The paper leaves "workload" undefined. Here it is the volume (size times demand) of a
machine's jobs, since size alone does not measure how full a machine is. Ties go to the lowest machine.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.trace_replay.kernels.time_heap import heap_pop, heap_push


@compiled
def least_work_machines(order: Integers, volumes: Integers, machines: int) -> Integers:
    """Return (n,) the machine of each job, jobs being handed out in order."""
    work = np.zeros(machines, np.int64)
    numbers = np.arange(machines)
    chosen = np.empty(order.shape[0], np.int64)
    for job in order:
        least = work[0]
        machine = numbers[0]
        chosen[job] = machine
        size = heap_pop(work, numbers, machines)
        heap_push(work, numbers, size, least + volumes[job], machine)
    return chosen

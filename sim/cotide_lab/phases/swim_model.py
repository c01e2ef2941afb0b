"""Facebook's jobs as tasks of phases: from the bytes that SWIM's logs give to chains of phases.

Called by the phases experiment. The logs have what a job read, shuffled and wrote, without its tasks. The model, all of
it chosen:

    maps      one for each block of 128 MB that is read or left by the maps, whichever is more (the usual block then);
              jobs that generate data read nearly nothing
    reduces   one for each GB that is shuffled or written, whichever is more; none where nothing is shuffled: the maps
              then write
    map       reads and computes at 8 MB/s on a core, and 1 s to begin
    merge     its share of the shuffle at 40 MB/s with 0.3 of a core; left out below half a second
    shuffle   at 25 MB/s with 0.2 of a core, and 1 s to begin
    sort      at 50 MB/s with half a core; left out below half a second
    reduce    at 15 MB/s, and its share of the output at 25 MB/s, on a core

Memory is as in `mixes`. A reduce's memory follows the size of its sort, up to the stated maximum. The log of 2010 is of
3,000 machines: its bytes are scaled to 600, which is what SWIM's own replay does on a smaller cluster. As many nodes as
make task level hold eight tenths of the cluster over the day, if it packed without loss: the busiest hours then queue.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from cotide_core.phases.profile import Phase, Profile
from cotide_lab.phases.mixes import GIB, NODE
from cotide_lab.phases.workload import Stage, Workload, stragglers
from cotide_sim.traces.mapreduce.swim import MACHINES, SwimLog

MB: Final = 1e6
BLOCK: Final = 128 << 20
SCALED_TO: Final = 600
LOAD: Final = 0.8
HOUR: Final = 3600.0
HALF: Final = 12
"""Hours that a report draws: as many as the odd ones of a day."""
SHORTEST: Final = 500
"""Milliseconds below which a phase is a part of its neighbour."""


def drawn_hours(log: SwimLog, seed: int, hours: int = HALF, *, tuning: bool = False) -> SwimLog:
    """Return some hours of a log, drawn with replacement (a block bootstrap): seeds differ in their jobs.

    Parameters
    ----------
    hours : how many, at least 1.
    tuning : draws from the even hours of the log, which the odd hours of a report never contain.
    """
    generator = np.random.default_rng([seed, 4])
    last = int(log.submitted[-1] // HOUR)
    those = np.arange(0 if tuning else 1, last + 1, 2)
    hour = (log.submitted // HOUR).astype(np.int64)
    drawn = [np.flatnonzero(hour == one) for one in generator.choice(those if len(those) else [0], hours)]
    jobs = np.concatenate(drawn)
    begun = HOUR * (np.repeat(np.arange(hours), [len(jobs_of_hour) for jobs_of_hour in drawn]) - hour[jobs])
    return SwimLog(
        log.name, log.submitted[jobs] + begun, log.read_bytes[jobs], log.shuffle_bytes[jobs], log.written_bytes[jobs]
    )


def facebook_day(log: SwimLog, seed: int) -> Workload:
    """Return the jobs of a log as a workload; the seed is that of the stragglers."""
    generator = np.random.default_rng(seed)
    scale = min(1.0, SCALED_TO / MACHINES.get(log.name, SCALED_TO))
    jobs = len(log.submitted)
    stages: list[Stage] = []
    for job in range(jobs):
        stages += _stages(
            job, *(scale * column[job] for column in (log.read_bytes, log.shuffle_bytes, log.written_bytes))
        )
    held = sum(
        stage.tasks
        * sum(phase.milliseconds for phase in stage.true.phases)
        * max(need / there for need, there in zip(stage.true.largest(), NODE, strict=True))
        for stage in stages
    )
    span = max(3600.0, float(log.submitted[jobs - 1]))
    nodes = max(1, round(held / 1000.0 / span / LOAD))
    return Workload(
        name=log.name,
        kinds=tuple("map only" if log.shuffle_bytes[job] == 0 else "map and reduce" for job in range(jobs)),
        submitted=(log.submitted[:jobs] * 1000).astype(np.int64),
        stages=tuple(stages),
        factor=stragglers(sum(stage.tasks for stage in stages), generator),
        capacity=np.tile(np.array(NODE, np.int64), (nodes, 1)),
    )


def _stages(job: int, read: float, shuffled: float, written: float) -> list[Stage]:
    maps = max(1, math.ceil(max(read, shuffled or written) / BLOCK))
    if shuffled <= 0:
        own = 1 + read / maps / (8 * MB) + written / maps / (25 * MB)
        return [Stage(job, _profile([("map", 1.0, 1.0, own)]), maps, reduces=False)]
    first = [("map", 1.0, 1.0, 1 + read / maps / (8 * MB)), ("merge", 0.3, 1.0, shuffled / maps / (40 * MB))]
    reduces = max(1, math.ceil(max(shuffled, written) / 1e9))
    part = shuffled / reduces
    sorting = min(1.6, 0.4 + part / 0.8e9)
    second = [
        ("shuffle", 0.2, min(0.7, sorting), 1 + part / (25 * MB)),
        ("sort", 0.5, sorting, part / (50 * MB)),
        ("reduce", 1.0, min(1.2, sorting), part / (15 * MB) + written / reduces / (25 * MB)),
    ]
    return [Stage(job, _profile(first), maps, reduces=False), Stage(job, _profile(second), reduces, reduces=True)]


def _profile(parts: list[tuple[str, float, float, float]]) -> Profile:
    phases = [
        Phase(name, (int(1000 * cores), int(GIB * gigabytes)), round(1000 * seconds))
        for name, cores, gigabytes, seconds in parts
    ]
    kept = [phase for phase in phases if phase.milliseconds >= SHORTEST]
    if not kept:
        longest = max(phases, key=lambda phase: phase.milliseconds)
        kept = [Phase(longest.name, longest.need, max(1, longest.milliseconds))]
    return Profile(tuple(kept))

"""A cell of a sweep, what it runs on, and what came of it.

Built by `plan` and the command, run by `cell_run`, kept by `journal`. Values only. Invariant: two cells with the same
key give the same outcome; all that can change an outcome is in the key, the content of the trace included.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from cotide_lab.job_logs.generated_log import Generator
from cotide_lab.trace_replay.runner import Runtime
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

Columns = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cell:
    """One replay.

    Attributes
    ----------
    trace : the name in tables: a file's own name, or the words of a generator.
    trace_sha256 : of the file as it stands, or of a sample of what the generator makes.
    settings : in words, how rows became jobs and how weeks are drawn.
    runtime : the policy's source of run times, a name of `runner.RUNTIMES`. policy : a name of `policies.POLICIES`, or
    of a policy from a file.
    seed : None for a log as it is; else of the drawn weeks, or of the generator.
    policy_sha256 : of the policy's file; None for one of ours.
    """

    trace: str
    trace_sha256: str
    settings: str
    runtime: Runtime
    policy: str
    seed: int | None
    policy_sha256: str | None = None

    @property
    def key(self) -> str:
        """Return the sha256 of all parameters: what the cell is known by."""
        parameters = asdict(self)
        if self.policy_sha256 is None:
            del parameters["policy_sha256"]  # cells of our policies were known by the others before there was any
        text = json.dumps(parameters, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def rank(self) -> tuple[str, str, str, int, str, str, str]:
        """Return the rank in a table, which no order of running can change; a log as it is stands before its draws."""
        seed = -1 if self.seed is None else self.seed
        return (self.trace, self.trace_sha256, self.settings, seed, self.runtime, self.policy, self.policy_sha256 or "")


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log's jobs for workers: ``columns`` is (5, n): submit, run, demand, request, user, as in `BatchJobs`."""

    trace: str
    trace_sha256: str
    settings: str
    processors: int
    columns: Columns
    weeks: int | None = None

    def jobs(self) -> BatchJobs:
        """Return the jobs, numbered from 1, in arrays of their own (what is shared between processes is read-only)."""
        submit, run, demand, request, user = (np.array(column) for column in self.columns)
        numbers = np.arange(1, len(submit) + 1, dtype=np.int64)
        return BatchJobs(self.trace, self.processors, numbers, submit, run, demand, request, user)


@dataclass(frozen=True, slots=True)
class SyntheticSource:
    """Generated jobs: ``count`` of one generator, submitted so as to fill ``load`` of the machine."""

    trace: str
    trace_sha256: str
    settings: str
    kind: Generator
    count: int
    load: float


Source = LogSource | SyntheticSource


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cell: figures, or the reason why there are none.

    Attributes
    ----------
    figures : value and the ends of the 95 % interval (None where there are too few weeks) by name of the figure.
    wall_seconds : of the replay, without compilation; not a result, it differs from run to run.
    """

    cell: Cell
    processors: int
    jobs: int
    figures: dict[str, tuple[float, float | None, float | None]]
    error: str | None
    wall_seconds: float

"""The plan of a campaign: load, rates, jobs and stopping rules; the head of its journal.

Made by `profile_command` from options, by `journal` from a file. Invariant: two equal plans measure the same thing, so
that the windows of one may be added to those of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Final, Self

from cotide_lab.predictors.profiling.design import Cell, Mix, Rule, cells_of
from cotide_lab.predictors.profiling.windows import Circumstances, JobKind

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job kind and the shell command (or the container image's command) of one job."""

    kind: JobKind
    command: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One campaign.

    Attributes
    ----------
    mode : ``active`` or ``passive``.
    source : the source of load and latency, as typed.
    jobs : jobs that may run next to the service.
    rates, counts : requests/s, and how many of one job at once; empty in passive mode.
    pairs : whether every two names are measured together, one of each.
    warm_up_seconds, window_seconds : before and of each window.
    """

    mode: str
    source: str
    jobs: tuple[BatchJob, ...]
    rates: tuple[float, ...]
    counts: tuple[int, ...]
    pairs: bool
    warm_up_seconds: float
    window_seconds: float
    rule: Rule
    limit_milliseconds: float
    allocatable_millicores: int
    service: str
    seed: int

    def circumstances(self) -> Circumstances:
        """Return the common properties of all windows."""
        kinds = tuple(job.kind for job in self.jobs)
        return Circumstances(kinds, self.limit_milliseconds, self.allocatable_millicores, self.service)

    def mixes(self) -> list[Mix]:
        """Return nothing, each name in each count, and the pairs when they are wanted."""
        names = sorted(job.kind.name for job in self.jobs)
        found: list[Mix] = [(), *(((name, count),) for name in names for count in self.counts)]
        if self.pairs:
            found += [((text, 1), (other, 1)) for text, other in combinations(names, 2)]
        return found

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells, the least harmful first."""
        return cells_of(self.rates, self.mixes())

    def as_document(self) -> dict[str, Any]:
        """Return the plan for JSON; an infinite harm is None."""
        document = asdict(self)
        harm = self.rule.harm_milliseconds
        document["rule"]["harm_milliseconds"] = None if harm == float("inf") else harm
        return {"format": FORMAT, **document}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the plan of a document; KeyError, TypeError or ValueError when it is invalid."""
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r} is not {FORMAT}")
        rule = dict(document["rule"])
        rule["harm_milliseconds"] = float("inf") if rule["harm_milliseconds"] is None else rule["harm_milliseconds"]
        return cls(
            **{
                **{key: value for key, value in document.items() if key != "format"},
                "jobs": tuple(BatchJob(JobKind(**one["kind"]), one["command"]) for one in document["jobs"]),
                "rates": tuple(document["rates"]),
                "counts": tuple(document["counts"]),
                "rule": Rule(**rule),
            }
        )


def differences(kept: Plan, wanted: Plan) -> Sequence[str]:
    """Return the names of the differing fields of two plans; stopping rules may change between two runs of one
    campaign."""
    free = {"rule", "rates", "counts", "pairs", "jobs"}
    old, new = kept.as_document(), wanted.as_document()
    found = [key for key in old if key not in free and old[key] != new[key]]
    before = {job.kind.name: job for job in kept.jobs}
    found += [f"job {job.kind.name}" for job in wanted.jobs if before.get(job.kind.name, job) != job]
    return found

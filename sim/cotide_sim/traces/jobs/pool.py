"""From demands in several resources to processors of one pool, with the meaning of a processor in words.

Called by the readers of traces that are not in the Standard Workload Format. Pure. Invariants: a demand is rounded up
to whole processors, so that no job gets less than its request. A pool describes itself in one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Demand = Literal["cpu", "dominant"]
"""``cpu``: other resources are ignored; ``dominant``: the resource with the job's largest share counts."""
DEMANDS: Final[tuple[Demand, ...]] = ("cpu", "dominant")


@dataclass(frozen=True, slots=True)
class Pool:
    """All machines of a trace as one.

    Attributes
    ----------
    source : where the totals are from, in words.
    unit : what one processor is, in words (``a tenth of a core``).
    cpu_per_processor : cpu of one processor, in the trace's unit, > 0.
    totals : what the machines have together, by resource, each in the trace's unit; ``cpu`` is one of them.
    demand : which resources count.
    """

    source: str
    unit: str
    cpu_per_processor: float
    totals: Mapping[str, float]
    demand: Demand = "cpu"

    @property
    def processors(self) -> int:
        """Return the processors of the pool, >= 1."""
        return max(1, int(self.totals["cpu"] / self.cpu_per_processor + 1e-9))

    def processors_for(self, asked: Mapping[str, float]) -> float:
        """Return the processors of a job, 0 when it asks for nothing that counts.

        With ``dominant`` a processor comes with its even share of every other resource, so that a job of half of all
        memory takes half of all processors.
        """
        total = self.totals["cpu"]
        needed = asked.get("cpu", 0.0) / self.cpu_per_processor
        if self.demand == "dominant":
            for name, amount in asked.items():
                if name != "cpu" and self.totals.get(name, 0.0) > 0:
                    needed = max(needed, amount / self.totals[name] * total / self.cpu_per_processor)
        # What is left of a whole number by division is no reason for one processor more.
        return float(math.ceil(needed - 1e-9))

    def sentence(self) -> str:
        """Return the conversion in words."""
        others = [name for name in self.totals if name != "cpu"]
        if self.demand == "dominant":
            named = ["cpu", *others]
            counted = f"a job takes the largest of its shares of {', '.join(named[:-1])} and {named[-1]}"
        else:
            counted = f"only cpu counts, {' and '.join(others)} {'is' if len(others) == 1 else 'are'} ignored"
        return (
            f"one processor is {self.unit}; {self.processors:,} of them in one pool ({self.source}); {counted}; "
            "rounded up"
        )

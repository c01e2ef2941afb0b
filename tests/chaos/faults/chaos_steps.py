"""What a plan is made of: its steps, the requests that it spoils, and how it reads."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from fault_proxy import Rule

from cotide_sim.kubelets.fake_nodes import Mishaps

SCRIPT_SECONDS: Final = 1.6
"""How long things happen; what then remains is the operator's to bring to an end. Chosen: 200 runs in 20 minutes."""
ALL: Final = (
    "bind",
    "make",
    "status",
    "note",
    "lease",
    "event",
    "list",
    "look",
    "end",
    "evict",
    "watch",
    "other",
    "resize",
)
KINDS: Final = ("bind", "make", "status", "note", "lease", "event", "list", "look", "end", "evict")
RESIZING: Final = ("resize", "note")
"""What is asked of pods with phases."""


@dataclass(frozen=True)
class Step:
    """One thing that happens, some seconds after the start."""

    at: float
    what: str
    how: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        said = " ".join(f"{key}={value}" for key, value in self.how.items())
        return f"{self.at:5.2f} s  {self.what} {said}"


@dataclass(frozen=True)
class Plan:
    """One run."""

    seed: int
    theme: str
    policy: str
    nodes: tuple[int, ...]
    """Cores of each."""
    election: bool
    standby: bool
    jumps: tuple[float, ...]
    steps: tuple[Step, ...]
    rules: tuple[Rule, ...]
    kill_path: str = "bind"
    kill_at: tuple[int, ...] = ()
    """Of the first operators that are started: at which point of the path each is killed; 0 is never."""
    tidy: bool = False
    """Whether somebody deletes each pod of a Job as soon as it has ended."""
    warm: bool = False
    """Whether things begin when the first operator decides, and not while it starts."""
    consolidates: bool = False
    """Whether the operator frees nodes; then online pods move, and the run ends when all nodes are free that can be."""
    phased: bool = False
    """Whether kubelets resize pods, and put off or refuse some of it; see `phased_nodes`."""
    mishaps: Mishaps | None = None
    """Of the machines, where the operator orders them: then there is no other node, and machines are of four cores."""
    stays_seconds: float = 0.0
    """For which machines stay on after they were wanted: `scaleDownStabilizationSeconds`."""
    ordered: bool = False
    """Whether the queue must be after a kill as it was before, whatever the policy."""
    named: bool = False
    """Whether operators find the API server by a name, for each request anew."""
    cpu_seconds: tuple[float, ...] = ()
    """Of the first operators that are started: after how much work the memory of each runs out; 0 is never."""
    models: bool = False
    """Whether operators learn, and keep what they learned in a directory that all of them share."""
    measured: bool = False
    """Whether there is a Prometheus that tells how busy the run's service is; see `metric_faults`."""
    hooked: bool = False
    """Whether somebody's webhook looks at what is written; see `webhook_faults`."""
    skews: tuple[str, ...] = ()
    """Of which version the operator and its standby are; empty words for ours. See `skewed`."""
    broken: str = ""
    """How the operators are broken on purpose; see `mutants`."""
    liveness_seconds: float = 60.0
    """After everything was healed, by when all must have come to an end; chosen for a busy machine."""

    def words(self) -> str:
        lines = [
            f"theme {self.theme}, policy {self.policy}, nodes of {', '.join(map(str, self.nodes))} cores, "
            f"election {self.election}, standby {self.standby}, clock jumps {list(self.jumps)}",
            *([f"versions {', '.join(skew or 'ours' for skew in self.skews)}"] if self.skews else []),
            *([f"machines stay for {self.stays_seconds:g} s after they were wanted"] if self.stays_seconds else []),
            f"killed on path {self.kill_path} at {list(self.kill_at)}, begins {'warm' if self.warm else 'cold'}"
            f"{', ended pods of Jobs are deleted' if self.tidy else ''}",
            *(str(step) for step in self.steps),
            *(str(rule) for rule in self.rules),
        ]
        return "\n".join(f"  {line}" for line in lines)


def moment(rng: random.Random, latest: float = SCRIPT_SECONDS) -> float:
    return round(rng.uniform(0.05, latest), 2)


Steps = list[Step]
Rules = list[Rule]

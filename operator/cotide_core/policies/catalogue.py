"""The registry of policies: one name, its aliases, where it runs, and its source.

Read by the live engine (`build_policy`), by trace replay, by the command's help and by the table in
docs/guide/policies.md, so that a name has one meaning everywhere. Invariant: each name or alias belongs to one policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cotide_core.config import SLACK_POLICIES
from cotide_core.errors import InputError


class Runner(StrEnum):
    """The environments that can run a policy."""

    LIVE = "live"
    """The engine: operator, demo, general world and ledger replay."""
    POOL = "pool"
    """Trace replay on one pool of processors (`cotide simulate`)."""
    MACHINES = "machines"
    """Trace replay on many machines with vector demands (`cotide simulate --machines`)."""


LIVE: Final = (Runner.LIVE,)
POOL: Final = (Runner.POOL,)
REPLAY: Final = (Runner.POOL, Runner.MACHINES)
MANY: Final = (Runner.LIVE, Runner.MACHINES)
"""Policies that only make sense on more than one machine."""
EVERYWHERE: Final = (Runner.LIVE, Runner.POOL, Runner.MACHINES)

OU: Final = "Ou 2024"
JIANG: Final = "Jiang et al."
LISTS: Final = "Naghshnejad 2019, sec. 3.2.2"
PLANS: Final = "Naghshnejad 2019, sec. 4.2.1"
GHODSI: Final = "Ghodsi et al. 2011"
BASELINE: Final = "baseline"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One policy.

    Attributes
    ----------
    name, aliases : its name, and other names for it.
    summary : one line for help and docs.
    source : the paper by author and year, or ``baseline``.
    runs : the environments that accept it.
    """

    name: str
    summary: str
    source: str
    runs: tuple[Runner, ...]
    aliases: tuple[str, ...] = ()

    @property
    def by_slack(self) -> bool:
        """Whether its capacity is forecast slack, so that it needs forecasts of the nodes' load."""
        return self.name in SLACK_POLICIES


def _plan(order: str, words: str) -> PolicyEntry:
    """Build the entry of a plan by one order, each job at its earliest start."""
    aliases = (f"online-{order}", f"{order}-plan", f"{order}-ef")
    return PolicyEntry(order, f"plan again at each event, {words} first", PLANS, EVERYWHERE, aliases)


def _lists() -> tuple[PolicyEntry, ...]:
    """Build the entries of list scheduling with a node that is chosen once, and of the random order."""
    orders = {"sjf": "shortest", "sdf": "smallest demand", "svf": "smallest volume", "random": "drawn"}
    machines = {"lw": "on the node with the least work", "random": "on a drawn node"}
    chosen = [
        PolicyEntry(f"{order}-{machine}", f"{words} first, {where}", LISTS, MANY)
        for order, words in orders.items()
        for machine, where in machines.items()
    ]
    return (PolicyEntry("random-ef", "in a drawn order, each where it can start first", LISTS, MANY), *chosen)


ENTRIES: Final = (
    PolicyEntry("qpsm", "shortest predicted job first by priority, under the latency guard", OU, LIVE),
    PolicyEntry("hierarchical", "batch and gratis pods by forecast slack, with the overload monitor", JIANG, LIVE),
    PolicyEntry(
        "predictive",
        "shortest predicted job first by forecast slack, under the latency guard, with the overload monitor",
        f"{OU}; {JIANG}",
        LIVE,
    ),
    PolicyEntry("fifo", "in order of arrival, by requests alone", BASELINE, LIVE),
    PolicyEntry(
        "fair", "the namespace that used least of its due first, by requests alone", GHODSI, (Runner.LIVE, Runner.POOL)
    ),
    PolicyEntry("random", "in a drawn order, by requests alone", BASELINE, LIVE),
    PolicyEntry("fifo-guarded", "in order of arrival, under the latency guard", BASELINE, LIVE),
    PolicyEntry("random-guarded", "in a drawn order, under the latency guard", BASELINE, LIVE),
    PolicyEntry("fcfs", "in order of submission, without overtaking", BASELINE, REPLAY),
    PolicyEntry("sjf-queue", "shortest forecast first, without overtaking", BASELINE, REPLAY),
    PolicyEntry("svf-queue", "smallest volume first, without overtaking", BASELINE, REPLAY),
    PolicyEntry("easy", "EASY: backfill that leaves the first job's start alone", PLANS, EVERYWHERE),
    PolicyEntry("easy-sjbf", "EASY, shortest tried first (FCFS-SJF)", PLANS, EVERYWHERE, ("fcfs-sjf",)),
    PolicyEntry("easy-svbf", "EASY, smallest volume first (FCFS-SVF)", PLANS, REPLAY, ("fcfs-svf", "easy-sabf")),
    PolicyEntry("easy-sjf", "EASY behind a queue in order of forecast", PLANS, REPLAY),
    PolicyEntry("easy-svf", "EASY behind a queue in order of volume", PLANS, REPLAY),
    PolicyEntry("conservative", "every job is promised a start when submitted", PLANS, EVERYWHERE),
    PolicyEntry(
        "slack",
        "promises with slack, which is spent when that helps the others more",
        "Talby and Feitelson 1999",
        EVERYWHERE,
    ),
    _plan("sjf", "shortest"),
    _plan("sdf", "smallest demand"),
    _plan("svf", "smallest volume"),
    *_lists(),
    PolicyEntry(
        "single",
        "plan again at each event, in the order of partial schedules of doubling length",
        "Naghshnejad 2019, sec. 3.3.3",
        POOL,
    ),
    PolicyEntry("block", "plan again at each event, in the order of Block-Scheduling", LISTS, POOL),
    PolicyEntry(
        "hybrid", "plans the predictable on a share, backfills the rest", "Naghshnejad 2019, sec. 4.4", EVERYWHERE
    ),
    PolicyEntry(
        "hybrid-printed",
        "the same as printed: a plan for the predictable, then EASY for the rest",
        "Naghshnejad 2019, sec. 4.4",
        (Runner.POOL,),
    ),
    PolicyEntry(
        "hybrid-machines",
        "pods of more than half a machine on machines of their own",
        "Naghshnejad 2019, sec. 3.3.3",
        MANY,
    ),
    *(
        PolicyEntry(f"{name}-guarded", f"{name} under the latency guard", f"{OU}; {PLANS}", LIVE)
        for name in ("easy", "easy-sjbf", "conservative", "svf", "slack", "sjf", "sdf")
    ),
    *(
        PolicyEntry(f"{name}-guarded", f"{name} under the latency guard", f"{OU}; Naghshnejad 2019, {where}", LIVE)
        for name, where in (("hybrid", "sec. 4.4"), ("hybrid-machines", "sec. 3.3.3"))
    ),
)
"""All policies, in the order of help and docs."""

BY_NAME: Final = MappingProxyType({name: entry for entry in ENTRIES for name in (entry.name, *entry.aliases)})
"""Name or alias to entry."""


def names(runner: Runner) -> tuple[str, ...]:
    """Return the names of the policies that run somewhere, without aliases."""
    return tuple(entry.name for entry in ENTRIES if runner in entry.runs)


def entry_of(name: str, runner: Runner, *, field: str = "policy") -> PolicyEntry:
    """Return a policy by name or alias.

    Raises
    ------
    InputError
        When there is none, or when it does not run there; names the nearest, and the available ones.
    """
    wanted = name.strip().lower()
    entry = BY_NAME.get(wanted)
    if entry is None:
        near = get_close_matches(wanted, BY_NAME, n=1)
        hint = f", did you mean {near[0]!r}? There" if near else "; there"
        raise InputError(f"there is no {name!r}{hint} are {', '.join(names(runner))}", field=field)
    if runner not in entry.runs:
        where = " and ".join(entry.runs)
        raise InputError(f"{name!r} runs {where} only; here there are {', '.join(names(runner))}", field=field)
    return entry


def by_slack(name: str) -> bool:
    """Whether a policy that runs live, by name or alias, has forecast slack as its capacity (see `placement`).

    Raises
    ------
    InputError
        When there is none.
    """
    return entry_of(name, Runner.LIVE).by_slack

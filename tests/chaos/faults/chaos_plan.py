"""What happens in one run: drawn from its seed, and from nothing else.

A plan says who comes when, what breaks when, and which requests are spoiled. The seed fixes the plan, not how the
processes interleave: the same seed meets the same faults, at other instructions. Each seed has a theme, in turn, so
that a row of seeds visits every kind of fault; a fifth of them mixes all themes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from fault_proxy import Rule

THEMES: Final = (
    "kills",
    "lost-answers",
    "api-restart",
    "watches",
    "nodes",
    "throttled",
    "errors",
    "taken",
    "clock",
    "mixture",
    "compaction",
    "slow",
    "failover",
    "store-restart",
    "preemption",
    "late",
    "frozen",
    "unwatched",
    "conflicts",
    "mixture",
)
POLICIES: Final = ("qpsm", "fifo", "qpsm", "easy", "random", "conservative", "qpsm", "svf", "fifo-guarded")
SCRIPT_SECONDS: Final = 1.6
"""How long things happen; what then remains is the operator's to bring to an end. Chosen: 200 runs in 20 minutes."""
CLASSES: Final = ("online", "batch", "gratis")
ALL: Final = ("bind", "make", "status", "note", "lease", "event", "list", "look", "end", "evict", "watch", "other")
KINDS: Final = ("bind", "make", "status", "note", "lease", "event", "list", "look", "end", "evict")


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
    broken: str = ""
    """How the operators are broken on purpose; see `mutants`."""
    liveness_seconds: float = 60.0
    """After everything was healed, by when all must have come to an end; chosen for a busy machine."""

    def words(self) -> str:
        lines = [
            f"theme {self.theme}, policy {self.policy}, nodes of {', '.join(map(str, self.nodes))} cores, "
            f"election {self.election}, standby {self.standby}, clock jumps {list(self.jumps)}",
            f"killed on path {self.kill_path} at {list(self.kill_at)}, begins {'warm' if self.warm else 'cold'}"
            f"{', ended pods of Jobs are deleted' if self.tidy else ''}",
            *(str(step) for step in self.steps),
            *(str(rule) for rule in self.rules),
        ]
        return "\n".join(f"  {line}" for line in lines)


def plan_of(seed: int) -> Plan:
    """Draw the plan of a seed."""
    rng = random.Random(f"chaos {seed}")
    theme = THEMES[seed % len(THEMES)]
    cores = tuple(rng.choice((4, 6, 8)) for _ in range(rng.randint(3, 5)))
    rules: list[Rule] = []
    drawn = [theme] if theme != "mixture" else rng.sample(sorted(set(THEMES) - {"mixture"}), 4)
    steps = _load(rng, sum(cores), crowded=rng.random() < 0.5, preemption="preemption" in drawn)
    for one in drawn:
        _FAULTS[one](rng, steps, rules, len(cores))
    together = {"failover", "frozen"} & set(drawn)
    if "preemption" not in drawn and random.Random(f"service {seed}").random() < 0.4:
        # A service that the operator runs itself; beside the other draws, which it leaves as they were.
        steps.append(Step(0.1, "service", {"name": "own", "replicas": 2, "cpu": "500m"}))
    kill_path = rng.choice(("bind", "bind", "job", "note"))
    kills = tuple(rng.randint(1, 60) for _ in range(rng.randint(1, 3))) if "kills" in drawn else ()
    return Plan(
        seed=seed,
        theme=theme if theme != "mixture" else f"mixture of {', '.join(drawn)}",
        policy="hierarchical" if "preemption" in drawn else rng.choice(POLICIES),
        nodes=cores,
        election=bool(together) or rng.random() < 0.2,
        standby=bool(together),
        jumps=tuple(rng.choice((-7200.0, -90.0, 90.0, 7200.0)) for _ in range(4)),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        rules=tuple(rules),
        kill_path=kill_path,
        kill_at=kills,
        tidy="unwatched" in drawn or random.Random(f"tidy {seed}").random() < 0.4,
        warm=rng.random() < 0.75,
    )


def kill_plan(path: str, at: int) -> Plan:
    """Return the small run in which the first operator is killed at one point of a path.

    Somebody waits for two seconds where evictions are asked for, and where notes are written: those of pods that are
    bound while others are, are withdrawn.
    """
    evicting, full = path == "evict", path in ("evict", "note")
    first, then = ("gratis", "online") if evicting else ("batch" if full else "online", "gratis")
    steps = [
        Step(0.0, "pods", _pods("first", first, 4 if full else 2, 1.0, 2.0 if full else None)),
        Step(0.6 if evicting else 0.0, "pods", _pods("then", then, 2, 1.0, None if evicting else 0.1)),
        Step(0.0, "job", {"name": "j", "cls": "batch", "completions": 3, "parallelism": 2, "cpu": "1", "seconds": 0.1}),
    ]
    return Plan(
        seed=at,
        theme=f"killed on path {path}",
        policy="hierarchical" if evicting else "fifo",
        nodes=(2, 2),
        election=path == "lease",
        standby=False,
        jumps=(),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        rules=(),
        kill_path=path,
        kill_at=(at,),
        tidy=path == "job",
    )


def burst_plan(pods: int, nodes: int) -> Plan:
    """Return the run in which everybody comes at once; killed and cut on the way."""
    cores = 64
    each = pods // 10
    steps = [
        *(Step(0.0, "pods", _pods(f"burst{part}", "batch", each, 0.25, 1.0)) for part in range(8)),
        *(Step(0.0, "pods", _pods(f"web{part}", "online", each, 0.25, None)) for part in range(2)),
        Step(4.0, "kill"),
        Step(8.0, "cut", {"how": "gone", "plural": ""}),
        Step(10.0, "restart-api", {"down": 0.3}),
    ]
    return Plan(
        seed=pods,
        theme=f"{pods} pods in a burst",
        policy="qpsm",
        nodes=(cores,) * nodes,
        election=False,
        standby=False,
        jumps=(),
        steps=tuple(steps),
        rules=(),
        liveness_seconds=900.0,
    )


def _at(rng: random.Random, latest: float = SCRIPT_SECONDS) -> float:
    return round(rng.uniform(0.05, latest), 2)


def _load(rng: random.Random, cores: int, *, crowded: bool, preemption: bool) -> list[Step]:
    """Who comes: 20-60 pods; online ones never ask for more than half of all nodes together.

    Where it is crowded, pods wait for room from the beginning, so that a place that is given away twice is seen. For a
    preemption there are gratis pods on the nodes before the online ones come.
    """
    steps: list[Step] = []
    budget = cores / 2
    for number in range(rng.randint(2, 4)):
        count, cpu = rng.randint(1, 4), rng.choice((0.5, 1.0, 1.5))
        if count * cpu > budget:
            continue
        budget -= count * cpu
        at = _at(rng) if number or preemption else 0.0
        steps.append(Step(at, "pods", _pods(f"web{number}", "online", count, cpu, None)))
    asked = 0.0
    for number in range(8 if crowded else rng.randint(2, 4)):
        cls = "gratis" if preemption else rng.choice(("batch", "gratis"))
        count, cpu = rng.randint(4, 12) if crowded else rng.randint(2, 8), rng.choice((0.5, 1.0, 2.0))
        long = crowded or preemption
        seconds = round(rng.uniform(0.3, 1.0) if long else rng.uniform(0.05, 0.4), 2)
        at = 0.0 if preemption else _at(rng, 0.5 if crowded else SCRIPT_SECONDS)
        steps.append(Step(at, "pods", _pods(f"run{number}", cls, count, cpu, seconds)))
        asked += count * cpu
        if crowded and asked > 2 * cores:
            break
    for number in range(rng.randint(1, 3)):
        completions = rng.randint(2, 7)
        how = {
            "name": f"job{number}",
            "cls": rng.choice(("batch", "gratis")),
            "completions": completions,
            "parallelism": rng.randint(1, completions),
            "cpu": f"{rng.choice((0.5, 1.0, 2.0)):g}",
            "seconds": round(rng.uniform(0.05, 0.3), 2),
        }
        steps.append(Step(_at(rng, 1.0), "job", how))
    return steps


def _pods(prefix: str, cls: str, count: int, cpu: float, seconds: float | None) -> dict[str, Any]:
    return {"prefix": prefix, "cls": cls, "count": count, "cpu": f"{cpu:g}", "seconds": seconds}


Steps = list[Step]
Rules = list[Rule]


def _kills(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(0, 2)):
        steps.append(Step(_at(rng), rng.choice(("kill", "kill", "stop"))))
    if rng.random() < 0.7:
        effect = rng.choice(("tell-before", "tell-after"))
        rules.append(Rule(rng.choice(("bind", "status", "make")), rng.randint(1, 12), 1, effect, what="kill"))


def _lost_answers(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(3, 6)):
        kind = rng.choice(("bind", "bind", "bind", "make", "status", "note", "look", "end"))
        effect = rng.choice(("drop-after", "drop-after", "drop-before"))
        rules.append(Rule(kind, rng.randint(1, 25), rng.choice((1, 1, 2, 6, 12)), effect))
    if rng.random() < 0.6:
        _blackout(rng, rules, "drop-after")


def _blackout(rng: random.Random, rules: Rules, effect: str) -> None:
    """At a binding it begins: everything is done, and no answer comes back for longer than the client keeps trying."""
    what = f"blackout {effect} {rng.uniform(1.0, 2.5):.1f}"
    rules.append(Rule("bind", rng.randint(1, 25), 1, "tell-before", what=what))


def _late(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(2, 5)):
        kind = rng.choice(("bind", "bind", "make", "status"))
        count = rng.choice((1, 2, 6, 12))
        rules.append(Rule(kind, rng.randint(1, 20), count, "late", round(rng.uniform(0.05, 1.0), 2)))
    if rng.random() < 0.6:
        _blackout(rng, rules, "late")


def _restarts(rng: random.Random, steps: Steps, what: str) -> None:
    for _ in range(rng.randint(1, 2)):
        steps.append(Step(_at(rng), what, {"down": round(rng.uniform(0.0, 0.6), 2)}))


def _api_restart(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    if rng.random() < 0.5:
        _restarts(rng, steps, "restart-api")
    else:
        effect = rng.choice(("tell-before", "tell-after"))
        rules.append(Rule(rng.choice(("bind", "status", "make")), rng.randint(1, 12), 1, effect, what="restart-api"))


def _store_restart(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    _restarts(rng, steps, "restart-store")


def _watches(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(3, 8)):
        how = rng.choice(("clean", "abrupt", "torn", "gone"))
        steps.append(Step(_at(rng), "cut", {"how": how, "plural": rng.choice(("", "", "pods", "nodes", "jobs"))}))


def _compaction(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(1, 3)):
        at = _at(rng)
        steps.append(Step(at, "compact"))
        steps.append(Step(at + 0.01, "cut", {"how": rng.choice(("gone", "abrupt", "gone")), "plural": ""}))


def _storms(rng: random.Random, steps: Steps, effect: str, status: int, seconds: float = 0.0) -> None:
    for _ in range(rng.randint(1, 2)):
        begin = _at(rng, 1.0)
        some = tuple(sorted(rng.sample(KINDS, rng.randint(2, 5)))) if rng.random() < 0.5 else KINDS
        how = {"kinds": some, "share": rng.choice((0.3, 0.7, 1.0)), "effect": effect, "status": status}
        steps.append(Step(begin, "storm", {**how, "seconds": seconds}))
        steps.append(Step(round(begin + rng.uniform(0.2, 0.8), 2), "calm"))


def _throttled(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    _storms(rng, steps, "status", 429)


def _errors(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    _storms(rng, steps, "status", rng.choice((500, 503)))


def _slow(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    _storms(rng, steps, "delay", 0, rng.choice((0.05, 0.3, 2.5)))


def _conflicts(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for kind in ("status", "bind", "note", "lease"):
        rules.append(Rule(kind, rng.randint(1, 10), rng.randint(1, 4), "status", status=409))


def _taken(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(2, 4)):
        effect = rng.choice(("tell-before", "tell-after"))
        rules.append(Rule("bind", rng.randint(1, 20), 1, effect, what="take"))
    for _ in range(rng.randint(2, 4)):
        steps.append(Step(_at(rng), "take", {"of": rng.choice(("waiting", "bound", "any")), "which": rng.random()}))


def _nodes(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(2, 4)):
        node, begin = rng.randrange(nodes), _at(rng, 1.2)
        away, back = rng.choice((("node-gone", "node-back"), ("not-ready", "ready"), ("cordon", "uncordon")))
        steps.append(Step(begin, away, {"node": node}))
        steps.append(Step(round(begin + rng.uniform(0.02, 0.8), 2), back, {"node": node}))
    if rng.random() < 0.5:
        rules.append(Rule("bind", rng.randint(1, 15), 1, rng.choice(("tell-before", "tell-after")), what="node-blink"))


def _clock(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(1, 4)):
        steps.append(Step(_at(rng), "jump"))
    rules.append(Rule("bind", rng.randint(1, 15), rng.choice((1, 3, 8)), "delay", 0.8))
    rules.append(Rule("bind", rng.randint(1, 10), 1, "tell-before", what="jump"))
    if rng.random() < 0.5:
        rules.append(Rule("bind", rng.randint(5, 20), 6, "status", status=500))


def _failover(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(1, 2)):
        steps.append(Step(_at(rng), rng.choice(("kill", "stop"))))


def _frozen(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """The leader stands still for longer than its lease, and wakes up with bindings in its hands."""
    seconds = round(rng.uniform(5.0, 8.0), 1)
    if rng.random() < 0.5:
        rules.append(Rule("bind", rng.randint(1, 12), 1, "tell-before", what=f"freeze {seconds}"))
    else:
        steps.append(Step(_at(rng), "freeze", {"seconds": seconds}))


def _unwatched(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """Nobody decides for a while, in which pods of Jobs end and are deleted."""
    for _ in range(rng.randint(1, 3)):
        steps.append(Step(_at(rng), "away", {"seconds": round(rng.uniform(0.3, 1.2), 2)}))
    rules.append(Rule("note", rng.randint(1, 10), rng.choice((1, 3)), rng.choice(("drop-after", "drop-before"))))


def _preemption(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    if rng.random() < 0.5:
        rules.append(Rule("evict", 1, rng.randint(1, 3), rng.choice(("drop-after", "drop-before"))))
    if rng.random() < 0.5:
        rules.append(Rule("evict", rng.randint(1, 3), 1, "tell-after", what="kill"))
    if rng.random() < 0.3:
        steps.append(Step(_at(rng), "kill"))


_FAULTS: Final = {
    "kills": _kills,
    "lost-answers": _lost_answers,
    "late": _late,
    "api-restart": _api_restart,
    "store-restart": _store_restart,
    "watches": _watches,
    "compaction": _compaction,
    "throttled": _throttled,
    "errors": _errors,
    "slow": _slow,
    "conflicts": _conflicts,
    "taken": _taken,
    "nodes": _nodes,
    "clock": _clock,
    "failover": _failover,
    "frozen": _frozen,
    "unwatched": _unwatched,
    "preemption": _preemption,
}

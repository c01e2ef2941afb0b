"""What happens in one run: drawn from its seed, and from nothing else.

A plan says who comes when, what breaks when, and which requests are spoiled. The seed fixes the plan, not how the
processes interleave: the same seed meets the same faults, at other instructions. Each seed has a theme, in turn, so
that a row of seeds visits every kind of fault; a fifth of them mixes all themes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

from chaos_steps import RESIZING, SCRIPT_SECONDS, Plan, Step, moment
from fault_catalogue import FAULTS
from fault_proxy import Rule
from measured_plan import measured_plan

from cotide_sim.kubelets.fake_nodes import Mishaps

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
    "disk",
    "names",
    "crowded",
    "one-clock",
    "memory",
    "models-disk",
    "restored",
    "webhook",
    "measured",
    "skew",
)
ALONE: Final = frozenset({"mixture", "measured", "restored"})
"""Never part of a mixture: an operator that is killed has to learn rates anew, and what breaks beside a backup that is
restored may be excused."""
POLICIES: Final = ("qpsm", "fifo", "qpsm", "easy", "random", "conservative", "qpsm", "svf", "fifo-guarded")
CLASSES: Final = ("online", "batch", "gratis")


def plan_of(seed: int) -> Plan:
    """Draw the plan of a seed."""
    rng = random.Random(f"chaos {seed}")
    theme = THEMES[seed % len(THEMES)]
    if theme == "measured":
        return measured_plan(seed)
    cores = tuple(rng.choice((4, 6, 8)) for _ in range(rng.randint(3, 5)))
    rules: list[Rule] = []
    drawn = [theme] if theme != "mixture" else rng.sample(sorted(set(THEMES) - ALONE), 4)
    steps = _load(rng, sum(cores), crowded=rng.random() < 0.5, preemption="preemption" in drawn)
    for one in drawn:
        FAULTS[one](rng, steps, rules, len(cores))
    together = {"failover", "frozen", "one-clock", "skew"} & set(drawn)
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
        named="names" in drawn,
        cpu_seconds=_worked(seed) if "memory" in drawn else (),
        models="models-disk" in drawn or "skew" in drawn,
        hooked="webhook" in drawn,
        skews=_skews(seed) if "skew" in drawn else (),
    )


def _skews(seed: int) -> tuple[str, ...]:
    """Draw the versions of the operator and its standby: one of them is ours, or neither."""
    rng = random.Random(f"skew {seed}")
    pair = rng.choice((("", "older"), ("", "newer"), ("older", "newer")))
    return pair if rng.random() < 0.5 else pair[::-1]


def _worked(seed: int) -> tuple[float, ...]:
    """Draw after how much work each of the first operators runs out of memory; to start takes about half a second."""
    rng = random.Random(f"memory {seed}")
    return tuple(round(rng.uniform(0.05, 1.5), 3) for _ in range(rng.randint(1, 3)))


def kill_plan(path: str, at: int) -> Plan:
    """Return the small run in which the first operator is killed at one point of a path.

    Somebody waits for two seconds where evictions are asked for, and where notes are written: those of pods that are
    bound while others are, are withdrawn. On the path "drain" four pods stand on three nodes: two of these are freed.
    """
    if path == "drain":
        service = Step(0.0, "service", {"name": "own", "replicas": 4, "cpu": "500m"})
        small = replace(drain_plan(0), policy="fifo", nodes=(4, 4, 4), election=False, steps=(service,))
        return replace(small, seed=at, theme=f"killed on path {path}", kill_at=(at,))
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


def drain_plan(seed: int) -> Plan:
    """Return a run in which an operator that frees nodes is killed up to three times, at points that the seed draws."""
    rng = random.Random(f"drain {seed}")
    replicas = rng.randint(4, 6)
    kills = tuple(rng.randint(1, 40) for _ in range(rng.randint(1, 3)))
    steps = [Step(0.0, "service", {"name": "own", "replicas": replicas, "cpu": "500m"})]
    if rng.random() < 0.4:
        steps.append(Step(moment(rng), rng.choice(("kill", "stop"))))
    return Plan(
        seed=seed,
        theme="an operator that frees nodes, killed",
        policy=rng.choice(("fifo", "qpsm")),
        nodes=(4,) * rng.randint(2, 4),
        election=rng.random() < 0.3,
        standby=False,
        jumps=(),
        steps=tuple(steps),
        rules=(),
        kill_path="drain",
        kill_at=kills,
        warm=True,
        consolidates=True,
    )


def gang_plan(seed: int) -> Plan:
    """Return a run with four to six gangs of 2 to 64 pods among single pods; operators are killed, nodes and pods go.

    All nodes together take the largest gang, and not all of them at once.
    """
    rng = random.Random(f"gangs {seed}")
    nodes = tuple(rng.choice((6, 8, 10)) for _ in range(rng.randint(3, 4)))
    sizes = [rng.randint(17, 64), *(rng.choice((2, 3, 4, 6, 8, 12, 16)) for _ in range(rng.randint(3, 5)))]
    steps: list[Step] = []
    for number, size in enumerate(sizes):
        how = {
            "name": f"gang{number}",
            "cls": rng.choice(("batch", "batch", "gratis")),
            "completions": size,
            "parallelism": size,
            "cpu": "0.25",
            "seconds": round(rng.uniform(0.2, 1.0), 2),
            "gang": {"timeoutSeconds": 2, **({"minMember": rng.randint(2, size)} if rng.random() < 0.3 else {})},
        }
        steps.append(Step(moment(rng), "job", how))
    for number in range(rng.randint(1, 4)):
        seconds = round(rng.uniform(0.2, 1.0), 2)
        steps.append(Step(moment(rng), "pods", _pods(f"run{number}", "batch", rng.randint(2, 8), 0.5, seconds)))
    rules: list[Rule] = []
    FAULTS["nodes"](rng, steps, rules, len(nodes))
    if rng.random() < 0.6:
        FAULTS["taken"](rng, steps, rules, len(nodes))
    FAULTS["kills"](rng, steps, rules, len(nodes))
    return Plan(
        seed=seed,
        theme="gangs, killed and torn apart",
        policy=rng.choice(("fifo", "qpsm", "easy", "random", "conservative", "svf")),
        nodes=nodes,
        election=rng.random() < 0.2,
        standby=False,
        jumps=(),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        rules=tuple(rules),
        kill_at=tuple(rng.randint(1, 90) for _ in range(rng.randint(0, 2))),
        tidy=rng.random() < 0.3,
        warm=rng.random() < 0.75,
        liveness_seconds=90.0,
    )


def provision_plan(seed: int) -> Plan:
    """Return a run in which machines are ordered and switched off, and fail, are late, vanish or answer as they like.

    The operator is killed up to three times, at points of an order or a stop that the seed draws. In two runs of five
    machines stay for a while after they were wanted.
    """
    rng = random.Random(f"provision {seed}")
    first, then = rng.randint(3, 9), rng.randint(1, 3)
    steps = [Step(0.0, "service", {"name": "own", "replicas": first, "cpu": "1"})]
    if rng.random() < 0.3:
        steps.append(Step(round(rng.uniform(2.0, 6.0), 2), "vanish"))
    if rng.random() < 0.3:
        steps.append(Step(round(rng.uniform(1.0, 8.0), 2), rng.choice(("kill", "stop"))))
    steps.append(Step(round(rng.uniform(4.0, 9.0), 2), "scale", {"name": "own", "replicas": then}))
    fails, late, silent, twice = (round(rng.uniform(0.0, 0.4), 2) for _ in range(4))
    return Plan(
        seed=seed,
        theme="machines ordered and switched off",
        policy=rng.choice(("fifo", "qpsm")),
        nodes=(),
        election=rng.random() < 0.3,
        standby=False,
        jumps=(),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        rules=(),
        kill_path="provision",
        kill_at=tuple(rng.randint(1, 60) for _ in range(rng.randint(1, 3))),
        warm=True,
        consolidates=True,
        mishaps=Mishaps(boot_seconds=0.3, fails=fails, late=late, silent=silent, twice=twice),
        stays_seconds=round(rng.uniform(2.0, 10.0), 1) if rng.random() < 0.4 else 0.0,
    )


def phases_plan(seed: int) -> Plan:
    """Return a run of Jobs with phases whose resizes are refused, put off and lost, and whose operator is killed.

    Nodes are full from the beginning, so that phases wait for each other. No node fails: that is of other plans.
    """
    rng = random.Random(f"phases {seed}")
    cores = tuple(rng.choice((2, 3, 4)) for _ in range(rng.randint(1, 3)))
    steps = []
    for number in range(rng.randint(3, 5)):
        completions = rng.randint(2, 5)
        how = {
            "name": f"job{number}",
            "cls": rng.choice(("batch", "gratis")),
            "completions": completions,
            "parallelism": rng.randint(1, completions),
            "cpu": "0.1",
            "seconds": round(rng.uniform(0.05, 0.3), 2),
            "needs": tuple(rng.choice((200, 500, 1000, 1500, 2000)) for _ in range(rng.randint(2, 4))),
            "mute": rng.random() < 0.5,
        }
        steps.append(Step(moment(rng, 0.8), "job", how))
    for number in range(rng.randint(1, 3)):
        count, cpu = rng.randint(1, 5), rng.choice((0.5, 1.0))
        seconds = round(rng.uniform(0.1, 0.8), 2)
        steps.append(
            Step(moment(rng), "pods", _pods(f"run{number}", rng.choice(("batch", "gratis")), count, cpu, seconds))
        )
    rules = []
    for _ in range(rng.randint(1, 5)):
        effect = rng.choice(("drop-after", "drop-after", "drop-before", "status", "tell-before", "tell-after"))
        effect_when_asked = "kill" if effect.startswith("tell") else ""
        status = rng.choice((409, 422, 429, 500, 503)) if effect == "status" else 0
        count = 1 if effect_when_asked else rng.choice((1, 1, 3, 8))
        rules.append(
            Rule(rng.choice(RESIZING), rng.randint(1, 30), count, effect, status=status, what=effect_when_asked)
        )
    if rng.random() < 0.3:
        begin = moment(rng)
        storm = {"kinds": RESIZING, "share": 1.0, "effect": "drop-after", "status": 0, "seconds": 0.0}
        steps += [Step(begin, "storm", storm), Step(round(begin + rng.uniform(0.3, 1.0), 2), "calm")]
    return Plan(
        seed=seed,
        theme="phases: resizes refused, put off and lost",
        policy=rng.choice(("fifo", "qpsm", "easy", "random")),
        nodes=cores,
        election=rng.random() < 0.2,
        standby=False,
        jumps=(),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        rules=tuple(rules),
        kill_path="resize",
        kill_at=tuple(rng.randint(1, 80) for _ in range(rng.randint(0, 2))),
        warm=True,
        phased=True,
        liveness_seconds=150.0,  # pods that follow each other, some of whose phases wait for four seconds
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
        at = moment(rng) if number or preemption else 0.0
        steps.append(Step(at, "pods", _pods(f"web{number}", "online", count, cpu, None)))
    asked = 0.0
    for number in range(8 if crowded else rng.randint(2, 4)):
        cls = "gratis" if preemption else rng.choice(("batch", "gratis"))
        count, cpu = rng.randint(4, 12) if crowded else rng.randint(2, 8), rng.choice((0.5, 1.0, 2.0))
        long = crowded or preemption
        seconds = round(rng.uniform(0.3, 1.0) if long else rng.uniform(0.05, 0.4), 2)
        at = 0.0 if preemption else moment(rng, 0.5 if crowded else SCRIPT_SECONDS)
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
        steps.append(Step(moment(rng, 1.0), "job", how))
    return steps


def _pods(prefix: str, cls: str, count: int, cpu: float, seconds: float | None) -> dict[str, Any]:
    return {"prefix": prefix, "cls": cls, "count": count, "cpu": f"{cpu:g}", "seconds": seconds}

"""Every fault by its name: the steps and the spoiled requests that it adds to a plan."""

from __future__ import annotations

import random
from typing import Final

from chaos_steps import KINDS, Rules, Step, Steps, moment
from fault_proxy import Rule
from webhook_faults import WAYS as WEBHOOK_WAYS


def _kills(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(0, 2)):
        steps.append(Step(moment(rng), rng.choice(("kill", "kill", "stop"))))
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
    if rng.random() < 0.4:
        # Where operators are elected it arrives all the same, when its sender is dead.
        rules.append(Rule("bind", rng.randint(1, 20), 1, "late", 1.0, what="kill"))
    if rng.random() < 0.6:
        _blackout(rng, rules, "late")


def _restarts(rng: random.Random, steps: Steps, what: str) -> None:
    for _ in range(rng.randint(1, 2)):
        steps.append(Step(moment(rng), what, {"down": round(rng.uniform(0.0, 0.6), 2)}))


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
        steps.append(Step(moment(rng), "cut", {"how": how, "plural": rng.choice(("", "", "pods", "nodes", "jobs"))}))


def _compaction(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(1, 3)):
        at = moment(rng)
        steps.append(Step(at, "compact"))
        steps.append(Step(at + 0.01, "cut", {"how": rng.choice(("gone", "abrupt", "gone")), "plural": ""}))


def _storms(rng: random.Random, steps: Steps, effect: str, status: int, seconds: float = 0.0) -> None:
    for _ in range(rng.randint(1, 2)):
        begin = moment(rng, 1.0)
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
        steps.append(Step(moment(rng), "take", {"of": rng.choice(("waiting", "bound", "any")), "which": rng.random()}))


def _nodes(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(2, 4)):
        node, begin = rng.randrange(nodes), moment(rng, 1.2)
        away, back = rng.choice((("node-gone", "node-back"), ("not-ready", "ready"), ("cordon", "uncordon")))
        steps.append(Step(begin, away, {"node": node}))
        steps.append(Step(round(begin + rng.uniform(0.02, 0.8), 2), back, {"node": node}))
    if rng.random() < 0.5:
        rules.append(Rule("bind", rng.randint(1, 15), 1, rng.choice(("tell-before", "tell-after")), what="node-blink"))


def _clock(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(1, 4)):
        steps.append(Step(moment(rng), "jump"))
    rules.append(Rule("bind", rng.randint(1, 15), rng.choice((1, 3, 8)), "delay", 0.8))
    rules.append(Rule("bind", rng.randint(1, 10), 1, "tell-before", what="jump"))
    if rng.random() < 0.5:
        rules.append(Rule("bind", rng.randint(5, 20), 6, "status", status=500))


def _failover(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    for _ in range(rng.randint(1, 2)):
        steps.append(Step(moment(rng), rng.choice(("kill", "stop"))))


def _frozen(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """The leader stands still for longer than its lease, and wakes up with bindings in its hands."""
    seconds = round(rng.uniform(5.0, 8.0), 1)
    if rng.random() < 0.5:
        rules.append(Rule("bind", rng.randint(1, 12), 1, "tell-before", what=f"freeze {seconds}"))
    else:
        steps.append(Step(moment(rng), "freeze", {"seconds": seconds}))


def _unwatched(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """Nobody decides for a while, in which pods of Jobs end and are deleted."""
    for _ in range(rng.randint(1, 3)):
        steps.append(Step(moment(rng), "away", {"seconds": round(rng.uniform(0.3, 1.2), 2)}))
    rules.append(Rule("note", rng.randint(1, 10), rng.choice((1, 3)), rng.choice(("drop-after", "drop-before"))))


def _preemption(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    if rng.random() < 0.5:
        rules.append(Rule("evict", 1, rng.randint(1, 3), rng.choice(("drop-after", "drop-before"))))
    if rng.random() < 0.5:
        rules.append(Rule("evict", rng.randint(1, 3), 1, "tell-after", what="kill"))
    if rng.random() < 0.3:
        steps.append(Step(moment(rng), "kill"))


def _disk(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """The disk under the ledger takes nothing for a while, in which an operator may be killed and started again."""
    for _ in range(rng.randint(1, 2)):
        begin = moment(rng, 1.2)
        steps.append(Step(begin, "disk", {"says": rng.choice(("full", "full", "read-only"))}))
        steps.append(Step(round(begin + rng.uniform(0.2, 1.0), 2), "disk", {"says": ""}))
    if rng.random() < 0.4:
        steps.append(Step(moment(rng), "kill"))


def _names(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """The name of the API server is not found for a while, and watches end meanwhile."""
    for _ in range(rng.randint(1, 3)):
        begin = moment(rng, 1.2)
        steps.append(Step(begin, "names", {"found": False}))
        steps.append(Step(begin + 0.01, "cut", {"how": rng.choice(("abrupt", "clean")), "plural": ""}))
        steps.append(Step(round(begin + rng.uniform(0.1, 1.0), 2), "names", {"found": True}))


def _crowded(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """The server takes only few requests at a time, and refuses the others with 429."""
    for _ in range(rng.randint(1, 2)):
        begin = moment(rng, 0.8)
        steps.append(Step(begin, "crowd", {"most": rng.randint(1, 3)}))
        steps.append(Step(round(begin + rng.uniform(0.4, 2.0), 2), "crowd", {"most": 0}))


def _one_clock(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """The clock of one replica is set, now the leader's, now the standby's."""
    for _ in range(rng.randint(2, 4)):
        steps.append(Step(moment(rng), "jump", {"who": rng.choice(("leader", "standby"))}))
    if rng.random() < 0.5:
        steps.append(Step(moment(rng), rng.choice(("kill", "stop"))))


def _models_disk(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """The disk under models and what was learned takes nothing for a while, and the operator is killed meanwhile."""
    for _ in range(rng.randint(1, 2)):
        begin = moment(rng, 1.2)
        steps.append(Step(begin, "disk", {"of": "models", "says": rng.choice(("full", "full", "read-only"))}))
        over = round(begin + rng.uniform(0.4, 1.2), 2)
        steps.append(Step(over, "disk", {"of": "models", "says": ""}))
        if rng.random() < 0.7:
            steps.append(Step(round(over - 0.05, 2), "kill"))


def _restored(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """A backup is put back: all versions are earlier ones, and what came since never was."""
    saved = moment(rng, 0.8)
    steps.append(Step(saved, "backup"))
    steps.append(Step(round(saved + rng.uniform(0.5, 1.2), 2), "restore"))
    if rng.random() < 0.5:
        steps.append(Step(moment(rng), "take", {"of": rng.choice(("waiting", "bound")), "which": rng.random()}))


def _webhook(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """Somebody's webhook, which must be asked, is slow, answers nonsense or refuses at random for a while."""
    for _ in range(rng.randint(1, 2)):
        begin = moment(rng, 1.0)
        steps.append(Step(begin, "webhook", {"says": rng.choice(WEBHOOK_WAYS)}))
        steps.append(Step(round(begin + rng.uniform(0.4, 1.5), 2), "webhook", {"says": ""}))
    if rng.random() < 0.3:
        steps.append(Step(moment(rng), "kill"))


def _skew(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """Operators of two versions take over from each other; of which ones is in the plan."""
    for _ in range(rng.randint(1, 3)):
        steps.append(Step(moment(rng), rng.choice(("kill", "stop", "stop"))))


def _memory(rng: random.Random, steps: Steps, rules: Rules, nodes: int) -> None:
    """All of it is in the plan: see `chaos_steps.Plan.cpu_seconds`."""


FAULTS: Final = {
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
    "disk": _disk,
    "names": _names,
    "crowded": _crowded,
    "one-clock": _one_clock,
    "memory": _memory,
    "models-disk": _models_disk,
    "restored": _restored,
    "webhook": _webhook,
    "skew": _skew,
}

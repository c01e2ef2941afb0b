"""Fake nodes that are started and stopped: boots that are late or fail, nodes that vanish, answers that get lost.

Driven step by step by chaos tests and by whoever tries the order book without a cloud. Fulfils what a node actuator
must: an id that was started is not started again. Invariant: the same seed, the same mishaps; `started` counts, for
each id, how often a node was really begun.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from cotide_core.provisioning.node_orders import Action, Answer, NodeInstruction, NodeView


@dataclass(frozen=True, slots=True)
class Mishaps:
    """Probabilities of faults.

    Attributes
    ----------
    fails, late, silent, twice, vanishes : that a boot fails; takes ten times as long; that an answer, or half as often
    the instruction, gets lost; that an answer comes twice; that a node vanishes in a step.
    boot_seconds : of a boot that goes well.
    """

    boot_seconds: float = 120.0
    fails: float = 0.0
    late: float = 0.0
    silent: float = 0.0
    twice: float = 0.0
    vanishes: float = 0.0


@dataclass(slots=True)
class FakeNodes:
    """A pool of fake nodes.

    Attributes
    ----------
    nodes : by name, those that have booted.
    booting : id to kind and the second at which the node is there; failed boots stay in ``failed``.
    started : id to how often a node was begun for it.
    """

    rng: np.random.Generator
    mishaps: Mishaps = field(default_factory=Mishaps)
    nodes: dict[str, NodeView] = field(default_factory=dict)
    booting: dict[str, tuple[str, float]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    started: Counter[str] = field(default_factory=Counter)
    killed_online: int = 0

    def do(self, instruction: NodeInstruction, now: float) -> list[Answer]:
        """Carry an instruction out; return the answers that arrive: none, one or two."""
        if self.rng.uniform() < self.mishaps.silent / 2.0:
            return []  # it never arrived
        action, subject, kind, _ = instruction
        answer = Answer.ACCEPTED
        if action is Action.START:
            answer = self._start(subject, kind, now)
        elif action is Action.CANCEL:
            answer = self._cancel(subject)
        elif subject in self.nodes:
            node = self.nodes[subject]
            if action is Action.STOP:
                self.killed_online += node.online_pods
                del self.nodes[subject]
            else:
                self.nodes[subject] = replace(node, cordoned=action is Action.CORDON)
        if self.rng.uniform() < self.mishaps.silent:
            return []
        return [answer] * (2 if self.rng.uniform() < self.mishaps.twice else 1)

    def let_pass(self, now: float) -> None:
        """Let boots end, and nodes vanish."""
        for order, (kind, at) in list(self.booting.items()):
            if at <= now:
                del self.booting[order]
                self.nodes[f"node-{order}"] = NodeView(f"node-{order}", kind, order)
        for name in list(self.nodes):
            if self.rng.uniform() < self.mishaps.vanishes:
                del self.nodes[name]

    def _start(self, order: str, kind: str, now: float) -> Answer:
        if order in self.failed:
            return Answer.FAILED
        if order in self.cancelled:
            return Answer.GONE
        if self.started[order]:
            return Answer.ACCEPTED
        self.started[order] += 1
        if self.rng.uniform() < self.mishaps.fails:
            self.failed.add(order)
            return Answer.FAILED
        slow = 10.0 if self.rng.uniform() < self.mishaps.late else 1.0
        self.booting[order] = (kind, now + slow * self.mishaps.boot_seconds)
        return Answer.ACCEPTED

    def _cancel(self, order: str) -> Answer:
        self.cancelled.add(order)
        if self.booting.pop(order, None) is None and f"node-{order}" in self.nodes:
            return Answer.UNKNOWN  # it has come meanwhile, as the cluster will show
        return Answer.GONE

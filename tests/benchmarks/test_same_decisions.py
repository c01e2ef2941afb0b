"""The comparison without text reads what an instruction decides, and none of its sentences."""

from __future__ import annotations

import pytest
from same_decisions import decision, digests

from cotide_core.instructions import Bind, Evict, EvictCause, Instruction, Wait, WaitReason


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Bind("d/a", "u", "n1", "the least loaded node"), Bind("d/a", "u", "n1", "its load is the least")),
        (
            Wait("d/a", "u", WaitReason.QOS_AT_RISK, "0/4 nodes are available", attempts=1),
            Wait("d/a", "u", WaitReason.QOS_AT_RISK, "none of 4 nodes is available", attempts=2),
        ),
        (Evict("d/a", "u", "n1", "d/b needs its room"), Evict("d/a", "u", "n1", "its room goes to d/b")),
    ],
    ids=["bind", "wait", "evict"],
)
def test_instructions_of_other_words_decide_the_same(one: Instruction, other: Instruction) -> None:
    assert one != other
    assert decision(one) == decision(other)


WAITING = Wait("d/a", "u", WaitReason.QOS_AT_RISK, "", nominated_node="n1", victims=("d/v",))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Bind("d/a", "u", "n1", ""), Bind("d/a", "u", "n2", "")),
        (Bind("d/a", "u", "n1", ""), Bind("d/b", "u", "n1", "")),
        (Bind("d/a", "u", "n1", ""), Bind("d/a", "u", "n1", "", at_risk=True)),
        (Bind("d/a", "u", "n1", ""), Evict("d/a", "u", "n1", "")),
        (WAITING, Wait("d/a", "u", WaitReason.QOS_AT_RISK, "", nominated_node="n1", victims=("d/w",))),
        (WAITING, Wait("d/a", "u", WaitReason.QOS_AT_RISK, "", nominated_node="n2", victims=("d/v",))),
        (WAITING, Wait("d/a", "u", WaitReason.INSUFFICIENT_SLACK, "", nominated_node="n1", victims=("d/v",))),
        (Evict("d/a", "u", "n1", ""), Evict("d/a", "u", "n1", "", EvictCause.OVERLOADED)),
        (Evict("d/a", "u", "n1", ""), Evict("d/a", "u", "n1", "", nominee="d/b")),
    ],
    ids=["node", "pod", "risk", "kind", "victims", "nominated node", "reason", "cause", "nominee"],
)
def test_instructions_that_decide_otherwise_differ(one: Instruction, other: Instruction) -> None:
    assert decision(one) != decision(other)


def test_a_cluster_decides_the_same_twice_and_another_differs() -> None:
    once, again, other = (list(digests(range(seed, seed + 1), ["fifo"], text=False)) for seed in (0, 0, 1))
    assert once == again
    assert once[0][2] > 0, "no pod was bound"
    assert once[0][3] != other[0][3]

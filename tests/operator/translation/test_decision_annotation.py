"""The note on a pod is short, honest about what it cut, and reads back."""

from __future__ import annotations

import pytest

from cotide_core.errors import InputError
from cotide_core.instructions import Forecast, NodeVerdict, WaitReason
from cotide_operator.cache.decision_store import Decision
from cotide_operator.translation.decision_annotation import NOTE_LIMIT_BYTES, decode, decode_past, encode


def decision(**changes: object) -> Decision:
    values: dict[str, object] = {
        "key": "shop/count-0",
        "uid": "u1",
        "decided_seconds": 1000.25,
        "node": None,
        "reason": "QosAtRisk",
        "message": "0/40 nodes are available: 25 would break the latency limit of shop/web (p=0.83), 15 full.",
        "refused": (
            NodeVerdict(15, "insufficient cpu", WaitReason.INSUFFICIENT_SLACK, "fake-9"),
            NodeVerdict(25, "would break the latency limit", WaitReason.QOS_AT_RISK, "fake-1", 0.83),
        ),
        "forecast": Forecast(0.83, 12.5, 30.0, "ab" * 32, "heuristic"),
        "attempts": 3,
        "demotions": 1,
        "queue_position": 4,
        "retry_at_seconds": 1004.5,
        "predicted_start_seconds": 1010.0,
        "predicted_finish_seconds": 1070.5,
    }
    return Decision(**{**values, **changes})  # type: ignore[arg-type]  # a builder: the dataclass checks names


def test_a_note_reads_back_as_the_decision_with_the_largest_group_first() -> None:
    note = decode(encode(decision()), "shop/count-0")
    assert [verdict.nodes for verdict in note.decision.refused] == [25, 15]
    assert note.decision.forecast == decision().forecast
    assert note.decision == decision(refused=note.decision.refused)
    assert (note.more_verdicts, note.more_nodes) == (0, 0)


def test_a_bound_pods_note_reads_back() -> None:
    bound = decision(
        node="fake-1", reason="Scheduled", refused=(), queue_position=None, retry_at_seconds=None, forecast=Forecast()
    )
    assert decode(encode(bound), "shop/count-0").decision == bound


def test_what_a_risk_rests_on_is_noted_and_words_that_are_not_ours_are_left_out() -> None:
    forecast = Forecast(0.5, qos_model="heuristic", qos_outside=("rate unknown", "service"), qos_evidence=7)
    text = encode(decision(forecast=forecast))
    assert decode(text, "shop/count-3").decision.forecast == forecast
    foreign = text.replace("rate unknown", "<b>anything</b>")
    assert decode(foreign, "shop/count-3").decision.forecast.qos_outside == ("service",)


def test_a_long_list_of_verdicts_is_cut_at_the_limit_and_the_rest_is_counted() -> None:
    many = tuple(
        NodeVerdict(n, f"reason number {n}: " + "x" * 80, WaitReason.INSUFFICIENT_SLACK, f"node-{n}")
        for n in range(1, 61)
    )
    text = encode(decision(refused=many))
    note = decode(text, "shop/count-0")
    kept = note.decision.refused
    assert len(text.encode()) <= NOTE_LIMIT_BYTES
    assert kept[0].nodes == 60
    assert len(kept) + note.more_verdicts == 60
    # 1 + 2 + ... + 60 = 1830 nodes in all, none of them lost.
    assert sum(verdict.nodes for verdict in kept) + note.more_nodes == 1830


def test_an_endless_message_and_non_ascii_text_still_fit() -> None:
    assert len(encode(decision(message="ü" * 5000, refused=())).encode()) <= NOTE_LIMIT_BYTES
    long = encode(decision(message="y" * 5000))
    assert decode(long, "a/b").decision.message.endswith("...")


def test_a_probability_that_is_no_number_becomes_none() -> None:
    note = decode(encode(decision(forecast=Forecast(qos_violation_probability=float("nan")))), "a/b")
    assert note.decision.forecast.qos_violation_probability is None


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"v":9}', '{"v":1,"uid":"u"}', "not json"])
def test_a_foreign_annotation_is_one_clear_line(text: str) -> None:
    with pytest.raises(InputError, match=r"decision|version"):
        decode(text, "a/b")


def test_a_nomination_is_noted_with_the_victims_that_have_room() -> None:
    nominated = decision(nominated_node="fake-1", victims=("shop/a", "shop/b"))
    noted = decode(encode(nominated), "shop/count-0").decision
    assert (noted.nominated_node, noted.victims) == ("fake-1", ("shop/a", "shop/b"))
    long = decision(nominated_node="n" * 253, victims=tuple(f"{'s' * 63}/{'p' * 250}-{n}" for n in range(20)))
    text = encode(long)
    assert len(text.encode()) <= NOTE_LIMIT_BYTES
    assert len(decode(text, "shop/count-0").decision.victims) == 1, "each takes more than 300 of 400 bytes"


def test_what_a_restart_needs_of_a_note_is_read_alone() -> None:
    known = decision()
    assert decode_past(encode(known)) == (known.uid, known.attempts, known.demotions)
    assert decode_past('{"v":2,"uid":"u","attempts":1}') is None, "another version"
    assert decode_past("not a note") is None
    assert decode_past('{"v":1,"uid":"u","attempts":"many"}') is None

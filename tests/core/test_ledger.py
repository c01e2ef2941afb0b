"""A ledger reproduces exactly, and any change to it is found and named."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.errors import LedgerError
from cotide_core.events import (
    EVENT_TYPES,
    BindRefused,
    Budget,
    BudgetDeleted,
    BudgetUpserted,
    Event,
    EvictRefused,
    ForecastScored,
    HostPort,
    ModelsChanged,
    MoreToCome,
    Namespace,
    NamespaceDeleted,
    NamespaceUpserted,
    Node,
    NodeBackoffRestored,
    NodeContended,
    NodeDeleted,
    NodeForecasted,
    NodeTerm,
    NodeUpserted,
    NodeUsageSampled,
    PeakAhead,
    Pod,
    PodAssumed,
    PodDeleted,
    PodPhase,
    PodRefused,
    PodSelector,
    PodUpserted,
    RateForecast,
    RatesForecasted,
    Requirement,
    RunTimeForecast,
    RunTimesForecasted,
    SelectorDeleted,
    SelectorUpserted,
    ServiceSampled,
    Taint,
    Tick,
    Toleration,
    Workload,
    WorkloadDeleted,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import (
    INSTRUCTION_TYPES,
    Bind,
    Evict,
    EvictCause,
    Forecast,
    Instruction,
    NodeVerdict,
    Wait,
    WaitReason,
)
from cotide_core.placement.refusal_messages import services_at_risk
from cotide_core.policies import POLICIES
from cotide_core.recording.codec import decode, encode
from cotide_core.recording.ledger import LedgerWriter, read_ledger
from cotide_lab.commands.ledger_replay import replay

GOLDEN = Path(__file__).parent / "golden" / "ledger.jsonl"
KINDS: dict[str, type] = {cls.__name__: cls for cls in (*EVENT_TYPES, *INSTRUCTION_TYPES)}

AT_RISK = WaitReason.QOS_AT_RISK

FULL_POD = Pod(
    key="d/päd", uid="u", workload_class=WorkloadClass.GRATIS, requests=(("cpu", 1), ("memory", 2**40)),
    created_seconds=1 / 3, phase=PodPhase.RUNNING, node="a", ours=True, terminating=True, priority=-3, job="d/j",
    workload="d/w", job_priority=7, type="sort", input_bytes=9, requested_seconds=0.1, node_selector=(("k", "v"),),
    node_terms=(NodeTerm((Requirement("k", "In", ("a", "b")),), (Requirement("metadata.name", "Exists"),)),),
    tolerations=(Toleration("k", "Exists", "", ""),), host_ports=(HostPort("TCP", "10.0.0.1", 80),), gates=("g",),
    unsupported=("spec.x",), attempts=2, demotions=1, started_seconds=2.5, finished_seconds=1e-300,
)  # fmt: skip
VALUES: tuple[Event | Instruction, ...] = (
    PodUpserted(FULL_POD),
    PodUpserted(Pod("d/p", "u", WorkloadClass.ONLINE, (), 0.0)),
    NodeUpserted(Node("a", (("cpu", 1),), (("l", "v"),), (Taint("t", "", "NoSchedule"),), True, False)),
    NodeDeleted("a"),
    PodDeleted("d/p", "u"),
    WorkloadUpserted(Workload("d/w", 2.5, True)),
    WorkloadDeleted("d/w"),
    ServiceSampled("d/p", 1e22, 0.30000000000000004),
    BindRefused("d/p", "u", "a", 409, "conflict", True),
    ModelsChanged("x", "y"),
    Tick(),
    EvictRefused("d/p", "u", "a", 429, "budget"),
    NodeUsageSampled("a", 1.5, 250.25, 2.0**33),
    NodeContended("a", 1.5, 1 / 3, True),
    NodeForecasted("a", 600.0, 0.1, 2.0, 0.0, 4.0, ahead=(PeakAhead(1200.0, 1 / 3, 2.0), PeakAhead(9e9, 1.0, 2.0))),
    ForecastScored("a", "online-cpu", 600.0, 250.0, 240.5, 200.0, 260.0, 300.0, 0.01, -0.002, 0.4, 0.993, True),
    PodRefused("d/p", "u", "a", "OutOfcpu", 1 / 3),
    PodAssumed("d/p", "u", "a", 1 / 3),
    NodeBackoffRestored("a", "OutOfcpu", 1 / 3, 2, (("cpu", 7), ("pods", 1)), "d/p"),
    RunTimesForecasted((RunTimeForecast("d/p", "u", 1 / 3, 2.0), RunTimeForecast("d/q", "v", 5.0, 5.0))),
    MoreToCome(),
    SelectorUpserted(PodSelector("Service", "d/s", (Requirement("app", "In", ("päd",)),))),
    SelectorDeleted("ReplicaSet", "d/r"),
    BudgetUpserted(Budget("d/b", (Requirement("app", "In", ("web",)),), 2, ("p",))),
    BudgetDeleted("d/b"),
    RatesForecasted((60.0, 1 / 3), 900.0, (RateForecast("d/p", (1e22, 0.1)), RateForecast("d/q", ()))),
    Bind(
        "d/p",
        "u",
        "a",
        "why",
        Forecast(0.1, 2.0, 3.0, "q", "c"),
        (NodeVerdict(1, "m", WaitReason.QOS_AT_RISK),),
        2,
        0.7,
    ),
    Wait("d/p", "u", WaitReason.MISCONFIGURED, "m", retry_at_seconds=5.0, cap="c"),
    Evict("d/p", "u", "a", "why", override=True),
    NamespaceUpserted(Namespace("d", 1500, 2**40, 7)),
    NamespaceDeleted("d"),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_event_and_instruction_comes_back_as_it_was(value: Event | Instruction) -> None:
    assert decode(json.loads(json.dumps(encode(value))), KINDS) == value


def test_what_a_sentence_names_is_data_that_no_ledger_repeats() -> None:
    """Ledgers of before read, and what the same engine decides today is written as it was then."""
    said = "would break the latency limit of d/web (p=0.83)"
    verdict = NodeVerdict(1, said, WaitReason.QOS_AT_RISK, "a", 0.83, service="d/web")
    wait = Wait("d/p", "u", WaitReason.QOS_AT_RISK, said, (verdict,))
    evict = Evict("d/p", "u", "a", "d/web was measured at 12 ms on a", EvictCause.LATENCY, service="d/web")
    for value in (wait, evict):
        assert '"service"' not in json.dumps(encode(value))
        assert decode(json.loads(json.dumps(encode(value))), KINDS) == value
    assert services_at_risk([wait, evict]) == {"d/web"}
    other_words = replace(wait, refused=(replace(verdict, message="its latency limit of nothing"),))
    assert services_at_risk([other_words]) == {"d/web"}


def test_every_kind_of_event_has_an_example_here() -> None:
    assert set(EVENT_TYPES) <= {type(value) for value in VALUES}


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_floats_come_back_to_the_bit(rate: float, latency: float) -> None:
    sampled = ServiceSampled("d/p", rate, latency)
    assert repr(decode(json.loads(json.dumps(encode(sampled))), KINDS)) == repr(sampled)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"kind": "Nothing"}, "unknown kind 'Nothing'"),
        ({"kind": "NodeDeleted"}, "NodeDeleted: the field name is missing"),
        ({"kind": "NodeDeleted", "name": 5}, "NodeDeleted.name: 5 is not of type str"),
        ({"kind": "NodeDeleted", "name": "a", "odd": 1}, "NodeDeleted: unknown field 'odd'"),
        ({"kind": "PodDeleted", "key": "a", "uid": True}, "PodDeleted.uid: True is not of type str"),
        ([], "expected an object, found list"),
    ],
)
def test_what_is_no_event_is_refused_by_field(data: object, complaint: str) -> None:
    with pytest.raises(LedgerError) as caught:
        decode(data, KINDS)
    assert str(caught.value) == complaint


def record(policy: str) -> list[bytes]:
    """Return the ledger of a short life with every sort of event."""
    config = SchedulerConfig(policy=policy, seed=3, qos_risk_threshold=0.25)
    scheduler, writer = Scheduler(config, HeuristicCatalogue()), LedgerWriter(config)
    lines = [writer.header()]

    def cycle(now: float, *events: Event) -> list[Instruction]:
        out = scheduler.handle(events, now)
        lines.append(writer.entry(now, events, out))
        return out

    nodes = [NodeUpserted(Node(f"n{n}", (("cpu", 4000), ("memory", 2**33), ("pods", 20)))) for n in range(4)]
    web = [Pod(f"shop/web-{n}", f"w{n}", WorkloadClass.ONLINE, (("cpu", 1000),), 0.0, workload="shop/web", ours=True)
           for n in range(3)]  # fmt: skip
    jobs = [
        Pod(f"d/j{n}", f"j{n}", WorkloadClass.BATCH if n % 3 else WorkloadClass.GRATIS, (("cpu", 500 + 250 * (n % 3)),),
            n / 7, ours=True, type=("sort", "grep")[n % 2], input_bytes=(n % 5) * 2**28, job_priority=100 + n % 2)
        for n in range(30)
    ]  # fmt: skip
    cycle(0.0, WorkloadUpserted(Workload("shop/web", 8.0)), *nodes, *map(PodUpserted, web))
    cycle(1.0, *(ServiceSampled(one.key, 9_000.0 * (n + 1), 3.1) for n, one in enumerate(web)))
    bound = [one for one in cycle(5.1, *map(PodUpserted, jobs)) if isinstance(one, Bind)]
    by_key = {job.key: job for job in jobs}
    confirmed = [
        by_key[bind.key]._replace(node=bind.node, phase=PodPhase.RUNNING, started_seconds=5.5) for bind in bound
    ]
    cycle(
        5.6, BindRefused(bound[0].key, bound[0].uid, bound[0].node, 500, "boom", True), *map(PodUpserted, confirmed[1:])
    )
    cycle(9.0, ServiceSampled("shop/web-2", 100.0), Tick())
    cycle(20.3, PodUpserted(confirmed[1]._replace(phase=PodPhase.SUCCEEDED, finished_seconds=20.1)))
    cycle(21.0, NodeDeleted("n3"), PodDeleted(jobs[-1].key, jobs[-1].uid))
    cycle(200.0)
    return lines


@pytest.mark.parametrize("policy", POLICIES)
def test_a_ledger_is_reproduced_exactly(policy: str) -> None:
    lines = record(policy)
    result = replay(lines, HeuristicCatalogue())
    assert result.difference is None
    assert result.cycles == len(lines) - 1
    assert result.instructions == sum(len(entry.instructions) for entry in read_ledger(lines)) > 20
    assert record(policy) == lines, "and recording again gives the same bytes"


def test_the_golden_ledger_is_still_reproduced() -> None:
    """Made by an earlier version of the engine: a difference means that decisions or words changed, so say so."""
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    assert replay(lines, HeuristicCatalogue()).difference is None
    assert lines == record("qpsm")


LINES = record("qpsm")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, sum(map(len, LINES)) - 1), st.integers(1, 255))
def test_any_one_changed_byte_is_found_at_its_line(offset: int, change: int) -> None:
    whole = bytearray(b"".join(LINES))
    number = whole[:offset].count(b"\n") + 1
    was_newline = whole[offset : offset + 1] == b"\n"
    whole[offset] ^= change
    result = replay(_split(bytes(whole)), HeuristicCatalogue())
    assert result.difference is not None
    # A lost newline joins two lines; a byte that became one splits its line: both are found where they are.
    assert f"line {number}" in result.difference or (was_newline and f"line {number + 1}" in result.difference)


def _split(content: bytes) -> list[bytes]:
    """Split as a file opened for reading bytes does: at newlines only."""
    return [part + b"\n" for part in content.split(b"\n")[:-1]] + [part for part in content.split(b"\n")[-1:] if part]


def test_a_line_that_was_cut_short_by_a_crash_is_told_apart_from_a_change() -> None:
    result = replay([*LINES[:-1], LINES[-1][:40]], HeuristicCatalogue())
    assert result.cycles == len(LINES) - 2
    assert result.difference == (
        f"line {len(LINES)} is cut short, the writer stopped in the middle of it; the lines before it are intact"
    )


def test_a_line_taken_out_or_put_elsewhere_is_found() -> None:
    taken_out = [*LINES[:3], *LINES[4:]]
    swapped = [*LINES[:3], LINES[4], LINES[3], *LINES[5:]]
    for lines in (taken_out, swapped):
        difference = replay(lines, HeuristicCatalogue()).difference
        assert difference is not None
        assert difference.startswith("line 4 was changed")


def test_an_altered_instruction_is_found_even_when_the_chain_was_made_anew() -> None:
    bodies = [line.split(b'","body":', 1)[1][:-2] for line in LINES]
    bodies[3] = bodies[3].replace(b'"node":"n', b'"node":"m', 1)
    chain, forged = "", []
    for body in bodies:
        chain = sha256(chain.encode() + body).hexdigest()
        forged.append(b'{"chain":"' + chain.encode() + b'","body":' + body + b"}\n")
    difference = replay(forged, HeuristicCatalogue()).difference
    assert difference is not None
    assert difference.startswith("line 4, instruction ")
    assert '"node":"m' in difference
    assert ", got {" in difference


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "the ledger is empty"),
        ([b"hello\n"], "line 1 is not how a ledger begins: this is none, or its beginning was changed"),
        ([b"\n"], "line 1 is not how a ledger begins: this is none, or its beginning was changed"),
    ],
)
def test_what_is_no_ledger_is_said_in_one_line(lines: list[bytes], complaint: str) -> None:
    assert replay(lines, HeuristicCatalogue()).difference == complaint


def test_a_ledger_of_another_schema_or_policy_is_refused_by_its_header() -> None:
    def header(body: bytes) -> bytes:
        return b'{"chain":"' + sha256(body).hexdigest().encode() + b'","body":' + body + b"}\n"

    config = b'{"kind":"SchedulerConfig","policy":"best"}'
    newer = replay([header(b'{"ledger":99}')], HeuristicCatalogue()).difference
    assert newer == "line 1: schema 99, this version reads schema 1"
    unknown = replay([header(b'{"ledger":1,"config":' + config + b"}")], HeuristicCatalogue()).difference
    assert unknown is not None
    assert unknown.startswith("line 1: config: policy: there is no 'best'; there are")

"""What tenants write is bounded at translation: nothing raises, nothing takes more than linear time."""

from __future__ import annotations

import contextlib
import json
import time

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from manifests import pod_object

from cotide_core.errors import InputError
from cotide_core.limits import CUSTOM_OBJECT_BYTES, DEPTH, INT32_MOST, MAX_EXACT_INT, MAX_SECONDS, NOTE_BYTES
from cotide_core.units import _parsed, bounded_amount, parse_quantity, resource_amount
from cotide_kube.decoding import Malformed, ObjectDecoder, shallow
from cotide_kube.objects import NodeObject, PodObject
from cotide_kube.timestamps import format_micro_timestamp, format_timestamp, parse_timestamp
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.controllers.job_reconciler import read_indexes, read_progress
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, decode, decode_past
from cotide_operator.translation.pod_times import PodObservations
from cotide_operator.translation.pods_and_nodes import PodOwnership, translate_node, translate_pod, translate_workload

JOBS = ObjectDecoder(CustomObject, CUSTOM_OBJECT_BYTES)
HOSTILE = ("1e30", "1e999999", "8Ei", "9223372036854775807", "-1", "1e-999999", "NaN", "9" * 40_000, "1" * 63 + "Ei")
HOSTILE_NUMBERS = (0, -1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 10**30, 1e308, -1e308)


def pod(spec: dict | None = None, annotations: dict | None = None, status: dict | None = None) -> PodObject:
    """A pod whose parts are the test's."""
    return pod_object("p", namespace="shop", uid="u", annotations=annotations or {}, spec=spec, status=status or {})


def translated(found: PodObject):
    seen = PodObservations(ScaledClock()).observe(found, live=True)
    return translate_pod(found, PodOwnership(), seen)


def asking(*quantities: str, resource: str = "memory") -> dict:
    return {"containers": [{"name": "c", "resources": {"requests": {resource: quantity}}} for quantity in quantities]}


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def job_line(spec: str, name: str = "deep") -> bytes:
    metadata = json.dumps({"name": name, "namespace": "shop", "uid": "u", "resourceVersion": "7"})
    return f'{{"type":"ADDED","object":{{"metadata":{metadata},"spec":{spec}}}}}'.encode()


@pytest.mark.parametrize("depth", [100, 300, 2_000, 9_990])
def test_a_job_that_is_nested_deeper_than_any_pod_is_named_and_not_decoded(depth):
    found = JOBS.line(job_line(nested(depth)))
    assert isinstance(found, Malformed)
    assert (found.key, found.resource_version, found.uid) == (("shop", "deep"), "7", "u")
    assert str(DEPTH) in found.fault


def test_of_a_list_only_the_deep_object_is_missing():
    body = json.loads(job_line("{}"))["object"]
    deep = job_line(nested(2_000), "bad").partition(b'"object":')[2][:-1]
    page = JOBS.page(b'{"metadata":{"resourceVersion":"9"},"items":[' + json.dumps(body).encode() + b"," + deep + b"]}")
    assert [item.metadata.name for item in page.items] == ["deep"]
    assert [bad.key for bad in page.malformed] == [("shop", "bad")]


def test_a_job_larger_than_any_template_is_named_and_not_decoded():
    found = JOBS.line(job_line(json.dumps({"x": "y" * CUSTOM_OBJECT_BYTES})))
    assert isinstance(found, Malformed)
    assert found.key == ("shop", "deep")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\[]{}'),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='b"\\{'), inner, max_size=3),
        max_leaves=12,
    ),
    st.integers(1, 6),
)
def test_cutting_by_depth_agrees_with_a_recursive_definition(value, depth):
    def cut(part, level):
        if isinstance(part, dict | list):
            if level >= depth:
                return None
            if isinstance(part, dict):
                return {key: cut(item, level + 1) for key, item in part.items()}
            return [cut(item, level + 1) for item in part]
        return part

    assert json.loads(shallow(json.dumps(value).encode(), depth)) == cut(value, 0)


PLAIN_NOTE = '{"v":1,"uid":"u","at":1.0,"reason":"r","message":"m","attempts":1,"x":'


def test_a_plain_note_is_one_whatever_else_stands_in_it():
    assert decode_past(PLAIN_NOTE + "[]}") == ("u", 1, 0)
    assert decode(PLAIN_NOTE + "[]}", "shop/p").decision.attempts == 1


@pytest.mark.parametrize(
    "note",
    [
        PLAIN_NOTE + "[" * 10_000,
        PLAIN_NOTE + "[" * 3_000 + "]" * 3_000 + "}",  # short enough to be read, and deeper than the stack
        "[" * 2_000,
        PLAIN_NOTE + '"' + "y" * NOTE_BYTES + '"}',  # a note in every other respect
    ],
    ids=["cut", "deep", "no object", "long"],
)
def test_a_note_of_somebody_else_is_no_note(note):
    assert decode_past(note) is None
    with pytest.raises(InputError):
        decode(note, "shop/p")
    assert translated(pod(annotations={DECISION_ANNOTATION: note})).attempts == 0


@given(st.sampled_from(HOSTILE_NUMBERS), st.sampled_from(["attempts", "demotions", "at", "retryAt", "position"]))
def test_numbers_of_a_note_are_clamped_or_the_note_is_none(number, name):
    body = {"v": 1, "uid": "u", "at": 1.0, "reason": "r", "message": "m", "attempts": 1, name: number}
    text = json.dumps(body)
    past = decode_past(text)
    assert past is None or 0 <= past[1] <= INT32_MOST
    try:
        decision = decode(text, "shop/p").decision
    except InputError:
        return
    assert 0 <= decision.attempts <= INT32_MOST
    for seconds in (decision.decided_seconds, decision.retry_at_seconds):
        assert seconds is None or format_timestamp(seconds).startswith(("1970-", "9999-"))


@given(
    st.text(max_size=2 * NOTE_BYTES) | st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
)
def test_any_text_is_a_note_or_refused_by_name(text):
    decode_past(text)
    with contextlib.suppress(InputError):
        assert decode(text, "shop/p").decision.key == "shop/p"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_quantity_is_exact_or_refused_and_costs_nothing(text):
    started = time.process_time()
    for resource in ("cpu", "memory"):
        with contextlib.suppress(InputError):
            assert abs(resource_amount(resource, text)) <= MAX_EXACT_INT
        with contextlib.suppress(InputError):
            assert 0 <= bounded_amount(resource, text) <= MAX_EXACT_INT
    assert time.process_time() - started < 1.0  # 26 s and 56 s when the text was read without a bound


@pytest.mark.parametrize("text", ["9" * 65, "1e" + "9" * 63, " " * 64 + "1"])
def test_a_text_longer_than_any_quantity_is_not_even_remembered(text):
    before = _parsed.cache_info()
    with pytest.raises(InputError, match=f"has {len(text)} characters, a quantity at most 64"):
        parse_quantity(text)
    assert _parsed.cache_info() == before


@given(
    st.integers(-(2**70), 2**70) | st.sampled_from(HOSTILE_NUMBERS),
    st.sampled_from(["", "m", "k", "Ki", "E", "Ei", "n"]),
)
@example(2**53, "")
@example(2**53 + 1, "")
def test_quantities_are_exact_up_to_two_to_the_53(number, suffix):
    text = f"{number}{suffix}"
    try:
        amount = resource_amount("memory", text)
    except InputError:
        return
    scale = {
        "": (1, 1),
        "m": (1, 1000),
        "k": (1000, 1),
        "Ki": (1024, 1),
        "E": (10**18, 1),
        "Ei": (2**60, 1),
        "n": (1, 10**9),
    }
    times, over = scale[suffix]
    assert amount == -((-int(float(number) if isinstance(number, float) else number) * times) // over)
    assert abs(amount) <= MAX_EXACT_INT


@pytest.mark.parametrize(
    ("text", "amount"), [("+1.5Gi", 3 << 29), (".5", 1), ("5.", 5), ("1e3", 1000), ("1E3", 1000), ("0e99999", 0)]
)
def test_the_whole_grammar_is_still_read(text, amount):
    assert resource_amount("memory", text) == amount


@pytest.mark.parametrize("text", ["", ".", "e3", "1e", "1 Gi", "٣", "1Gii", "--1"])
def test_what_is_no_quantity_is_named(text):
    with pytest.raises(InputError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1e30", "8Ei", "9223372036854775807"])
def test_a_request_beyond_any_node_is_named_and_counted_within_int64(text):
    found = translated(pod(asking(text, text)))
    assert dict(found.requests)["memory"] <= MAX_EXACT_INT
    assert found.unsupported[0].startswith("spec.containers[0].resources.requests[memory]")


@given(st.sampled_from(HOSTILE_NUMBERS).map(repr) | st.sampled_from(HOSTILE))
def test_no_node_has_more_than_is_counted_exactly(text):
    body = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": text, "memory": text, "pods": "110"}}}
    try:
        node = translate_node(msgspec.convert(body, NodeObject))
    except InputError:  # no quantity at all: the node is quarantined
        return
    assert all(0 <= amount <= MAX_EXACT_INT for _, amount in node.allocatable)


@given(st.sampled_from(HOSTILE) | st.text(max_size=50) | st.floats().map(repr))
def test_annotations_give_numbers_that_the_engine_can_add(text):
    names = ("input-size", "requested-seconds", "job-priority", "type")
    found = translated(pod(annotations={f"cotide.dev/{name}": text for name in names}))
    assert 0 <= found.input_bytes <= MAX_EXACT_INT
    assert found.requested_seconds is None or 0 < found.requested_seconds <= MAX_SECONDS
    assert 0 <= found.job_priority <= 1000
    assert len(found.type) <= 63


@given(st.sampled_from(HOSTILE_NUMBERS) | st.none() | st.text(max_size=3))
def test_a_promise_is_a_latency_that_is_finite(limit):
    body = {"metadata": {"name": "w", "namespace": "shop"}, "spec": {"qos": {"latencyP95Milliseconds": limit}}}
    assert 0 < translate_workload(msgspec.convert(body, CustomObject)).latency_p95_milliseconds <= 86_400_000


@given(st.floats(allow_nan=False) | st.sampled_from(HOSTILE_NUMBERS))
def test_every_number_of_seconds_can_be_written(seconds):
    assert parse_timestamp(format_timestamp(seconds)) >= 0
    assert parse_timestamp(format_micro_timestamp(seconds)) >= 0


def test_what_is_no_number_is_no_time():
    with pytest.raises(InputError):
        format_timestamp(float("nan"))


@pytest.mark.parametrize(
    "text", ["0-9999999999", "9990-99999", "0-" + "9" * 5_000, "9999999999", "5-", "-", "1-2-3", "0-0," * 200_000, "٣"]
)
def test_indexes_of_a_status_are_those_that_a_job_can_have(text):
    assert all(0 <= index < 10_000 for index in read_indexes(text))
    progress = read_progress({"completedIndexes": text, "retriedIndexes": f"3:{'9' * 5_000},4:2", "failures": 10**400})
    assert dict(progress.retries) == {4: 2}
    assert progress.failures == INT32_MOST


def test_indexes_are_still_read():
    assert read_indexes("0-3,7,9-9") == {0, 1, 2, 3, 7, 9}


def test_more_selector_terms_than_can_be_looked_at_for_every_node_are_named():
    terms = [{"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]} for n in range(8_000)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    found = translated(pod({"affinity": {"nodeAffinity": required}}))
    assert "more than 1024 entries" in found.unsupported[0]  # each term counts one, and its requirement another


def test_more_resources_than_nodes_offer_are_named_and_memory_is_still_counted():
    requests = {f"a.b/r{n}": "1" for n in range(8_000)} | {"memory": "1Gi"}
    found = translated(pod({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
    assert "8001 resources" in found.unsupported[0]
    assert dict(found.requests)["memory"] == 2**30
    assert len(found.requests) <= 200


def test_of_many_fields_at_fault_a_sentence_names_eight():
    found = translated(pod({"volumes": [{"iscsi": {}}] * 10_000}))
    assert len(found.unsupported) == 9
    assert found.unsupported[-1] == "9992 more"


def test_a_listener_that_raises_stops_neither_the_mirror_nor_the_others():
    cache, heard = ObjectCache(), []

    def trips(kind, key):
        raise RecursionError("too deep")

    cache.subscribe(trips)
    cache.subscribe(lambda kind, key: heard.append(key))
    cache.apply("pods", "ADDED", pod())
    assert heard == ["shop/p"]
    entry = cache.quarantine.get("pods", "shop/p")
    assert entry is not None
    assert (entry.uid, entry.fault) == ("u", "too deep")
    assert "trips" in entry.part

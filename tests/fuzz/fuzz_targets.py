"""Every parser of text that somebody else wrote, as a function of bytes that may only raise its own error.

Used by `fuzz` (coverage-guided) and by `test_fuzz_seeds` (a few inputs each, in the suite). A target returns nothing;
what it lets pass is what the parser documents.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from cotide_core.config import SchedulerConfig
from cotide_core.errors import CotideError, InputError, LedgerError, ModelError
from cotide_core.limits import CUSTOM_OBJECT_BYTES, MAX_EXACT_INT
from cotide_core.recording.ledger import read_ledger
from cotide_core.units import bounded_amount, parse_quantity, resource_amount
from cotide_files.columns import read_table
from cotide_kube import kubeconfig
from cotide_kube.decoding import ObjectDecoder
from cotide_kube.objects import NodeObject, PodObject
from cotide_kube.timestamps import format_timestamp, parse_timestamp
from cotide_operator.apis.types import read_job, read_workload
from cotide_operator.cache.object_cache import KINDS, CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.config.promql import LabelMatcher, PromQuery
from cotide_operator.config.settings import parse_settings
from cotide_operator.controllers.job_reconciler import read_progress
from cotide_operator.translation.decision_annotation import decode, decode_past
from cotide_operator.translation.event_source import EventSource
from cotide_operator.usage.prometheus import _matrix, _pod, _reason, _UsageQuery, _value
from cotide_operator.usage.prometheus_client import _decoded
from cotide_operator.usage.sources import SourceDown
from cotide_operator.webhooks.admission.review import Reviewer
from cotide_operator.webhooks.extender import wire
from cotide_operator.webhooks.extender.cluster_follower import ClusterFollower
from cotide_predictors.persistence.model_files import read_arrays, unpack
from cotide_sim.traces.jobs.any_log import FORMATS, read_any_log
from cotide_sim.traces.jobs.machines import read_machines
from cotide_sim.traces.jobs.swf import read_swf
from cotide_sim.traces.load.any_load import read_load_series

Target = Callable[[bytes], None]
_DECODERS = (
    ("pods", ObjectDecoder(PodObject)),
    ("nodes", ObjectDecoder(NodeObject)),
    ("jobs", ObjectDecoder(CustomObject, CUSTOM_OBJECT_BYTES)),
    ("workloads", ObjectDecoder(CustomObject, CUSTOM_OBJECT_BYTES)),
)
_FOLLOWER = ClusterFollower(SchedulerConfig(), ObjectCache(), ScaledClock(), ("cotide",), 30.0)
_FOLDER = Path(tempfile.gettempdir()) / "cotide-fuzz"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def quantity(data: bytes) -> None:
    text = _text(data)
    for read in (parse_quantity, lambda one: resource_amount("cpu", one), lambda one: bounded_amount("memory", one)):
        with contextlib.suppress(InputError):
            assert abs(read(text)) <= MAX_EXACT_INT or read is parse_quantity


def timestamp(data: bytes) -> None:
    with contextlib.suppress(InputError):
        format_timestamp(parse_timestamp(_text(data)))


def decision(data: bytes) -> None:
    text = _text(data)
    decode_past(text)
    with contextlib.suppress(InputError):
        decode(text, "shop/p")


def indexes(data: bytes) -> None:
    text = _text(data)
    progress = read_progress({"completedIndexes": text, "retriedIndexes": text, "failures": len(text)})
    assert all(0 <= index < 10_000 for index in progress.completed)


def watch_line(data: bytes) -> None:
    """Decode, cache, translate: as far as the engine."""
    cache = ObjectCache()
    source = EventSource(cache, ScaledClock(), ("cotide",))
    for kind, decoder in _DECODERS:
        found = decoder.line(data)
        if isinstance(found, tuple):
            cache.apply(kind, found[0], found[1])  # type: ignore[arg-type]  # each decoder's own kind
            for read in (read_job, read_workload):
                if isinstance(found[1], CustomObject):
                    with contextlib.suppress(InputError):
                        read({"metadata": {"name": found[1].metadata.name}, "spec": found[1].spec})
    source.collect()
    # What the gate lets through makes nothing raise; a quantity that is none sets a node aside, and says so.
    assert all("is not a quantity" in one.fault or "characters" in one.fault for one in cache.quarantine)


def review(data: bytes) -> None:
    cache = ObjectCache()
    for kind in KINDS:
        cache.mark_synced(kind)
    with contextlib.suppress(InputError):
        Reviewer(cache, ("cotide",)).answer(data).body()


def question(data: bytes) -> None:
    """Of kube-scheduler: as far as the translated pod."""
    for kind in (wire.NodeArgs, wire.PreemptionArgs, wire.BindingArgs):
        with contextlib.suppress(InputError):
            args = wire.read(kind, data)
            if isinstance(args, wire.NodeArgs):
                wire.node_names(args)
            if isinstance(args, wire.PreemptionArgs):
                wire.victims(args)
            if not isinstance(args, wire.BindingArgs):
                wire.asked_pod(args.pod)
                _FOLLOWER.translated(wire.whole_pod(args.pod), 0.0)


def settings(data: bytes) -> None:
    with contextlib.suppress(InputError):
        parse_settings(_text(data))


def ledger(data: bytes) -> None:
    with contextlib.suppress(LedgerError):
        list(read_ledger(data.splitlines(keepends=True)))


def manifest(data: bytes) -> None:
    with contextlib.suppress(ModelError):
        unpack({"manifest.json": data})
    with contextlib.suppress(ModelError):
        read_arrays(data, "model.npz")


def _file(data: bytes, name: str) -> Path:
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / name
    path.write_bytes(data)
    return path


def kubeconfig_file(data: bytes) -> None:
    with contextlib.suppress(CotideError):
        kubeconfig.read(_file(data, "kubeconfig"))


def swf_rows(data: bytes) -> None:
    with contextlib.suppress(CotideError):
        read_swf(_file(data, "log.swf"))


def prometheus_answer(data: bytes) -> None:
    """Decode, and take apart as an instant answer and as a range."""
    try:
        answer = _decoded(data)
    except SourceDown:
        return
    assert len(_reason(answer)) <= 400
    body = answer.get("data")
    for series in body["result"] if isinstance(body, dict) and isinstance(body.get("result"), list) else ():
        _value(_pod(series), series)
    with contextlib.suppress(SourceDown):
        _matrix(_UsageQuery("podCpuQuery", "x"), answer)


def promql(data: bytes) -> None:
    with contextlib.suppress(InputError):
        query = PromQuery.parse(_text(data))
        query.check_ranges()
        PromQuery.parse(query.enforced((LabelMatcher("namespace", "=", "shop"),)))


def job_traces(data: bytes) -> None:
    path = _file(data, "trace.csv")
    for form in (None, *FORMATS):
        for on_bad in ("fail", "skip"):
            with contextlib.suppress(CotideError):
                read_any_log(path, form=form, on_bad=on_bad)  # type: ignore[arg-type]  # the two words that it takes
    for form in ("openb", "alibaba2017"):
        with contextlib.suppress(CotideError):
            read_machines(form, path)


def load_traces(data: bytes) -> None:
    path = _file(data, "load.csv")
    with contextlib.suppress(CotideError):
        read_load_series(path)
    with contextlib.suppress(CotideError):
        read_table(path, numbers=("a",), texts=("b",))


_POD = {"metadata": {"name": "p", "namespace": "s", "uid": "u", "resourceVersion": "1"}, "spec": {"containers": []}}
TARGETS: dict[str, tuple[Target, tuple[bytes, ...]]] = {
    "quantity": (quantity, (b"250m", b"1e30", b"8Ei", b"9" * 60, b"1e999999", b".", b"-1", "\u0663".encode())),
    "timestamp": (timestamp, (b"2026-11-20T13:00:00Z", b"9999-12-31T23:59:59-23:59", b"0001-01-01T00:00:00+23:59")),
    "decision": (decision, (b'{"v":1,"uid":"u","at":1e308,"reason":"r","message":"m","attempts":1}', b"[" * 3000)),
    "indexes": (indexes, (b"0-3,7", b"0-9999999999", b"2:1,5:3", b"9" * 5000)),
    "watch_line": (
        watch_line,
        (
            json.dumps({"type": "ADDED", "object": _POD}).encode(),
            b'{"type":"ADDED","object":{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"1e30"}}}}',
            b'{"type":"ADDED","object":{"metadata":{"name":"n"},"spec":{"x":' + b"[" * 3000 + b"]" * 3000 + b"}}}",
            b'{"type":"ERROR","object":{"code":410}}',
        ),
    ),
    "review": (review, (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}',)),
    "question": (
        question,
        (
            json.dumps({"Pod": _POD, "NodeNames": ["a", "b"]}).encode(),
            json.dumps({"Pod": _POD, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u"}]}}}).encode(),
            b'{"PodName":"p","PodNamespace":"s","PodUID":"u","Node":"a"}',
            b'{"Pod":{"metadata":{"name":"p","namespace":"s","uid":"u"},"spec":' + b'{"a":' * 5000,
        ),
    ),
    "settings": (settings, (b"kind: CotideConfiguration\npolicy: fifo\n", b"&a [*a, *a]", b"[" * 2000, b"x: 1" * 99)),
    "ledger": (ledger, (b'{"chain":"' + b"0" * 64 + b'","body":{}}\n', b"[" * 3000 + b"\n")),
    "manifest": (manifest, (b'{"schema":1,"files":{}}', b"[" * 3000, b"PK\x03\x04")),
    "kubeconfig": (kubeconfig_file, (b"apiVersion: v1\nclusters: []\n", b"{" * 2000)),
    "swf": (swf_rows, (b"1 0 -1 5 1 -1 -1 1 9 -1 1 1 1 -1 1 -1 -1 -1\n", b"; UnixStartTime: x\n", b"1 nan 1e400\n")),
    "prometheus_answer": (
        prometheus_answer,
        (
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":"p"},"value":[1.5,"2"]}]}}',
            b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"pod":"p"},"values":[[1,"NaN"]]}]}}',
            b'{"status":"error","error":' + b"[" * 900 + b"]" * 900 + b"}",
            b'{"data":{"result":[{"metric":{"pod":'
            + b"[" * 900
            + b"]" * 900
            + b'},"value":[1'
            + b"0" * 400
            + b",2]}]}}",
            b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"pod":"p"},"values":[[1'
            + b"0" * 400
            + b',"1"]]}]}}',
            b'{"x":' + b"9" * 5000 + b"}",
        ),
    ),
    "promql": (
        promql,
        (
            b'sum by (pod) (rate(x{namespace="a"}[5m]))',
            b"(" * 60 + b"x" + b")" * 60,
            b"x[1y:1s]",
            b"x[88e012]",
            b"x offset -88e012",
            b"x offset -88e016",
            b"x offset -925e016",
        ),
    ),
    "job_traces": (
        job_traces,
        (
            b"1,2,3,j,t,Terminated,1.0,2.0\n",
            b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
            b"scheduled_time\np,1,2,0,0,,LS,Running,1,2,1\n",
            b"job_id,submit_time\n1e400,nan\n",
        ),
    ),
    "load_traces": (
        load_traces,
        (
            b"series,slot,load\na,0,0.5\na,1,0.25\n",
            b"series,slot,load\na,1000000000000,0.5\n",
            b"machine,time_s,cpu_percent\nm,0,5\n",
            b"machine,time_s,cpu_percent\na,0,5\na,6666666666666666666666666666666,10.2\n",
            b"a,b\n1,x\n",
        ),
    ),
}

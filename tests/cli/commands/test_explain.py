"""``cotide explain`` on the embedded API server: a screen, its data, and one line where it can't."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from cotide_cli import main as command_line
from cotide_core.instructions import Forecast, NodeVerdict, WaitReason
from cotide_operator.apis.crd_generation import RESOURCES, definition
from cotide_operator.cache.decision_store import Decision
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, encode
from cotide_sim.apiserver.testing import server_in_thread

JOBS = "/apis/cotide.dev/v1alpha1/namespaces/shop/jobs"


@dataclass
class Site:
    url: str
    kubeconfig: Path

    def send(self, method: str, path: str, body: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
        answer = requests.request(method, self.url + path, json=body, headers={"Content-Type": kind}, timeout=10)
        assert answer.ok, answer.text
        made: dict[str, Any] = answer.json()
        return made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with server_in_thread() as server:
        one = Site(server.url, server.write_kubeconfig(tmp_path_factory.mktemp("kube") / "config"))
        for resource in RESOURCES:
            one.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(resource))
        one.send("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        _fill(one)
        yield one


def _fill(site: Site) -> None:
    template = {"spec": {"containers": [{"name": "work", "image": "none"}]}}
    spec = {"class": "gratis", "type": "wordcount", "inputSize": "4Gi", "template": template}
    job = site.send("POST", JOBS, {"metadata": {"name": "count"}, "spec": spec})
    status = {"phase": "Queued", "queuePosition": 4, "predictedFinish": "2026-11-20T13:09:00Z"}
    site.send("PATCH", f"{JOBS}/count/status", {"status": status}, "application/merge-patch+json")
    owner = {
        "apiVersion": "cotide.dev/v1alpha1",
        "kind": "Job",
        "name": "count",
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": "count-0", "labels": {"cotide.dev/job": "count"}, "ownerReferences": [owner]}
    body = {"metadata": metadata, "spec": {"schedulerName": "cotide", **template["spec"]}}
    pod = site.send("POST", "/api/v1/namespaces/shop/pods", body)
    verdict = NodeVerdict(40, "would break the limit of [shop]/web", WaitReason.QOS_AT_RISK, "fake-1", 0.83)
    note = Decision(
        "shop/count-0",
        pod["metadata"]["uid"],
        1.0,
        None,
        "QosAtRisk",
        "0/40 nodes are available",
        (verdict,),
        Forecast(0.83, 90.0, 200.0, "heuristic", "heuristic"),
    )
    patch = {"metadata": {"annotations": {DECISION_ANNOTATION: encode(note)}}}
    site.send("PATCH", "/api/v1/namespaces/shop/pods/count-0", patch, "application/merge-patch+json")
    about = {"kind": "Pod", "namespace": "shop", "name": "count-0", "uid": pod["metadata"]["uid"]}
    event = {"metadata": {"name": "e1"}, "involvedObject": about, "type": "Warning", "reason": "FailedScheduling"}
    site.send("POST", "/api/v1/namespaces/shop/events", {**event, "message": "0/40 nodes are available", "count": 3})


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["cotide", "explain", *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    said = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.out, said.err


def test_a_pod_on_one_screen(site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, monkeypatch, "pod", "count-0", "-n", "shop", "--kubeconfig", str(site.kubeconfig))
    assert (code, err) == (0, "")
    assert out.startswith("pod shop/count-0\n")
    for words in (
        "gratis, by its Job count",
        "QosAtRisk: 0/40 nodes are available",
        "would break the limit of [shop]/web",  # brackets are words here, not markup
        "0.83",
        "4, its Job",
        "1m 30s, nine times in ten below 3m 20s",
        "2026-11-20T13:09:00Z",
        "FailedScheduling (x3)",
    ):
        assert words in out
    assert len(out.splitlines()) <= 40


def test_a_job_on_one_screen(site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "job", "count", "-n", "shop", "--kubeconfig", str(site.kubeconfig))
    assert code == 0
    assert "wordcount, input 4Gi, 1 pod" in out
    assert "count-0" in out


@pytest.mark.parametrize(
    "words", [("job/count",), ("jobs", "count"), ("jobs/count",), ("cjob/count",), ("jobs.cotide.dev", "count")]
)
def test_a_job_is_named_in_each_of_kubectls_ways(
    words: tuple[str, ...], site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, *words, "-n", "shop", "--kubeconfig", str(site.kubeconfig))
    assert (code, err) == (0, "")
    assert out.startswith("job shop/count\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("jobs",), "name: is missing: cotide explain job NAME, or job/NAME"),
        (("pod/",), "name: is missing: cotide explain pod NAME, or pod/NAME"),
        (("job/a", "b"), "name: is given twice: 'job/a' has one"),
        (("deploy/a",), "kind: 'deploy' is not one of 'pod', 'job'"),
        (("pod/a/b",), "name: 'a/b' is not a valid name of an object"),
    ],
)
def test_what_names_no_pod_or_job_is_refused_in_a_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, *words)
    assert (code, out) == (2, "")
    assert sentence in err


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_the_same_for_programs(
    form: str, read: Any, site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("pod", "count-0", "-n", "shop", "--kubeconfig", str(site.kubeconfig), "-o", form)
    code, out, _ = run(capsys, monkeypatch, *arguments)
    data = read(out)
    assert code == 0
    assert (data["kind"], data["class"], data["decision"]["reason"]) == ("Pod", "gratis", "QosAtRisk")
    assert data["decision"]["refused"][0]["probability"] == 0.83
    assert data["events"][0]["count"] == 3


def test_a_pod_on_reclaimed_capacity_is_told_what_its_node_offers(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    amounts = {"cotide.dev/reclaimed-cpu": "2000", "cotide.dev/reclaimed-memory": "1073741824"}
    asked = {key: {"cotide.dev/reclaimed-cpu": "750"} for key in ("limits", "requests")}
    site.send("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": amounts}})
    containers = [{"name": "c", "image": "none", "resources": asked}]
    spec = {"nodeName": "n1", "schedulerName": "cotide", "containers": containers}
    site.send("POST", "/api/v1/namespaces/shop/pods", {"metadata": {"name": "slack"}, "spec": spec})
    code, out, _ = run(capsys, monkeypatch, "pod", "slack", "-n", "shop", "--kubeconfig", str(site.kubeconfig))
    assert code == 0
    assert "750m cpu of reclaimed capacity" in out
    assert "n1 offers 2000m cpu and 1Gi memory; its pods request 750m cpu of it" in out


@pytest.mark.parametrize("kind", ["pod", "job"])
def test_what_is_not_there_is_one_line(
    kind: str, site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, kind, "nobody", "-n", "shop", "--kubeconfig", str(site.kubeconfig))
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "shop/nobody" in err


def test_a_server_that_does_not_answer_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with server_in_thread() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "config")
    code, out, err = run(capsys, monkeypatch, "pod", "x", "--kubeconfig", str(kubeconfig))
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1


def test_a_kind_that_can_not_be_explained_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, monkeypatch, "node", "x")
    assert code == 2
    assert "'node' is not one of 'pod', 'job'" in err


def test_a_pod_that_waits_for_its_volume_says_so_where_nothing_is_written_on_it(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    standard = {"metadata": {"name": "standard"}, "provisioner": "ebs.csi.aws.com"}
    site.send("POST", "/apis/storage.k8s.io/v1/storageclasses", standard)
    node = {"volume.kubernetes.io/selected-node": "n7"}
    needs = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "data-pg-0", "annotations": node}, "spec": {"storageClassName": "standard", **needs}}
    site.send("POST", "/api/v1/namespaces/shop/persistentvolumeclaims", claim)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-pg-0"}}]
    spec = {"schedulerName": "cotide", "volumes": volumes, "containers": [{"name": "pg", "image": "none"}]}
    site.send("POST", "/api/v1/namespaces/shop/pods", {"metadata": {"name": "pg-0"}, "spec": spec})
    code, out, err = run(capsys, monkeypatch, "pod", "pg-0", "-n", "shop", "--kubeconfig", str(site.kubeconfig))
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert "Decided on n7; it is bound when its volumes are" in words
    assert "a volume for claim data-pg-0, which driver ebs.csi.aws.com makes" in words
    assert "is the operator running" not in words

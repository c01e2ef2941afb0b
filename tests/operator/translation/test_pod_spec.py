"""What is remembered of a template is never taken for another one's."""

from __future__ import annotations

import msgspec
import pytest
from manifests import pod_object

from cotide_kube.objects import PodSpec
from cotide_operator.translation import pod_spec as pod_spec_facts
from cotide_operator.translation.pod_spec import SpecReader
from cotide_operator.translation.pod_times import PodTimes
from cotide_operator.translation.pods_and_nodes import PodOwnership, translate_pod


def spec(**fields: object) -> PodSpec:
    container = {"name": "main", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}
    return msgspec.convert({"containers": [container], **fields}, PodSpec)


VARIANTS = {
    "plain": {},
    "other image": {"containers": [{"image": "web:2", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}]},
    "other request": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "251m"}}}]},
    "unreadable request": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "many"}}}]},
    "host port": {"containers": [{"ports": [{"containerPort": 80, "hostPort": 8080}]}]},
    "host network": {"containers": [{"ports": [{"containerPort": 80}]}], "hostNetwork": True},
    "init": {"initContainers": [{"resources": {"requests": {"cpu": "2"}}}]},
    "overhead": {"overhead": {"cpu": "100m"}},
    "pod level": {"resources": {"requests": {"cpu": "3"}}},
    "selector": {"nodeSelector": {"disk": "ssd"}},
    "toleration": {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
    "gate": {"schedulingGates": [{"name": "quota"}]},
    "claim": {"resourceClaims": [{"name": "gpu"}]},
    "volume claim": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    "second volume claim": {"volumes": [{"name": "a"}, {"name": "b", "persistentVolumeClaim": {"claimName": "data"}}]},
    "ephemeral": {"volumes": [{"name": "a", "ephemeral": {}}]},
    "spread": {"topologySpreadConstraints": [{"topologyKey": "zone"}]},
    "affinity": {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    },
}


def test_each_field_that_is_read_makes_a_template_of_its_own() -> None:
    shared = SpecReader()
    for fields in VARIANTS.values():
        shared(spec(**fields))
    for name, fields in VARIANTS.items():
        assert shared(spec(**fields)) == SpecReader()(spec(**fields)), name
    assert len({shared(spec(**fields)) for fields in VARIANTS.values()}) == len(VARIANTS)


def test_pods_of_one_template_share_the_answer_whatever_their_nodes_and_volume_names() -> None:
    shared = SpecReader()
    one = shared(spec(nodeName="", volumes=[{"name": "kube-api-access-x7k2p"}]))
    other = shared(spec(nodeName="n1", volumes=[{"name": "kube-api-access-9qz4m"}]))
    assert one is other
    assert one.requests == (("cpu", 250), ("memory", 64 << 20))


def test_a_reader_that_remembers_too_much_forgets_and_answers_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_spec_facts, "KEPT", 2)
    shared = SpecReader()
    for fields in [*VARIANTS.values(), *VARIANTS.values()]:
        assert shared(spec(**fields)) == SpecReader()(spec(**fields))


def test_pods_with_equal_labels_keep_them_once_and_odd_crowds_of_labels_are_not_remembered() -> None:
    def labels(count: int) -> tuple[tuple[str, str], ...]:
        made = pod_object("p", labels={f"k{number}": "v" for number in range(count)})
        return translate_pod(made, PodOwnership(), PodTimes("u-p", 100.0)).labels

    assert labels(10) == labels(10)
    assert labels(10) is labels(10)
    assert labels(1000) == labels(1000)
    assert labels(1000) is not labels(1000)

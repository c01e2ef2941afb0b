"""The Helm chart installs what the overlays install."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from repository import ROOT

DEPLOY = ROOT / "deploy"
pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs the kubectl binary"),
]
RECLAIMED = """\
configuration:
  policy: hierarchical
  reclaimed: {publish: true}
  admission: {enabled: true}
  models: {retraining: null}
"""
"""Values that make it deploy/overlays/reclaimed, as `values.yaml` says."""


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("chart")
    command = [sys.executable, str(DEPLOY / "chart" / "generate.py"), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target / "cotide"


def by_name(documents: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return objects by kind and name, without what has to differ: a generated name's hash and the checksum for it."""
    found = {}
    for document in filter(None, yaml.safe_load_all(documents)):
        name = re.sub(r"^(cotide-configuration)-[a-z0-9]{10}$", r"\1", document["metadata"]["name"])
        document["metadata"]["name"] = name
        if document["kind"] == "Deployment":
            template = document["spec"]["template"]
            template["metadata"].pop("annotations", None)
            for volume in template["spec"]["volumes"]:
                if "configMap" in volume:
                    volume["configMap"]["name"] = "cotide-configuration"
        if document["kind"] == "ConfigMap":
            document["data"] = {key: yaml.safe_load(text) for key, text in document["data"].items()}
        found[document["kind"], name] = document
    return found


def kustomized(overlay: str) -> dict[tuple[str, str], dict[str, Any]]:
    found = built(f"overlays/{overlay}")
    del found["Namespace", "cotide-system"]  # helm makes the release's
    return found


def built(folder: str) -> dict[tuple[str, str], dict[str, Any]]:
    command = ["kubectl", "kustomize", str(DEPLOY / folder)]
    return by_name(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def rendered(chart: Path, *options: str, namespace: str = "cotide-system") -> dict[tuple[str, str], dict[str, Any]]:
    command = ["helm", "template", "cotide", str(chart), "--namespace", namespace, "--include-crds"]
    done = subprocess.run([*command, "--kube-version", "1.35.0", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return by_name(done.stdout)


def test_its_values_are_those_of_the_overlay_for_production(chart: Path) -> None:
    values = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    overlay = yaml.safe_load((DEPLOY / "overlays" / "prod" / "cotide.yaml").read_text(encoding="utf-8"))
    assert overlay["leaderElection"].pop("namespace") == "cotide-system"
    assert values["configuration"] == overlay
    deployment = kustomized("prod")["Deployment", "cotide-operator"]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    assert (values["replicas"], values["resources"]) == (deployment["replicas"], container["resources"])
    version = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    assert f"{values['image']['repository']}:{version}" == container["image"]


def test_no_template_names_a_namespace_of_its_own(chart: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (chart / "templates").iterdir()]
    assert len(texts) > 15
    assert not [text for text in texts if "cotide-system" in text or re.search(r"@[A-Z]+@", text)]


def test_the_rights_to_free_nodes_are_those_of_deploy_consolidation_where_there_is_such_a_section(chart: Path) -> None:
    for (kind, name), wanted in built("consolidation").items():
        text = (chart / "templates" / f"{kind.lower()}-{name}.yaml").read_text(encoding="utf-8")
        first, _, rest = text.partition("\n")
        assert first == '{{- if hasKey .Values.configuration "consolidation" }}'
        body = rest.removesuffix("{{- end }}\n").replace("{{ .Release.Namespace }}", "cotide-system")
        assert yaml.safe_load(body) == wanted


@pytest.mark.skipif(shutil.which("helm") is None, reason="needs the helm binary: docs/design/testing.md")
class TestRendered:
    def test_it_is_the_overlay_for_production(self, chart: Path) -> None:
        assert rendered(chart) == kustomized("prod")

    def test_with_the_values_of_its_comment_it_is_the_overlay_with_reclaimed_capacity(
        self, chart: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "values.yaml").write_text(RECLAIMED, encoding="utf-8")
        found, wanted = rendered(chart, "--values", str(tmp_path / "values.yaml")), kustomized("reclaimed")
        settings = found["ConfigMap", "cotide-configuration"]["data"]["cotide.yaml"]
        assert settings["admission"].pop("serviceNamespace") == "cotide-system"
        assert found == wanted

    def test_with_a_section_for_consolidation_it_is_the_overlay_and_deploy_consolidation(self, chart: Path) -> None:
        found = rendered(chart, "--set", "configuration.consolidation.enabled=true")
        settings = found["ConfigMap", "cotide-configuration"]["data"]["cotide.yaml"]
        assert settings.pop("consolidation") == {"enabled": True}
        assert found == {**kustomized("prod"), **built("consolidation")}

    def test_another_namespace_is_named_everywhere(self, chart: Path) -> None:
        assert "cotide-system" not in yaml.safe_dump([*rendered(chart, namespace="elsewhere").values()])

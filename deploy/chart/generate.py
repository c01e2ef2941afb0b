"""Makes the Helm chart from the kustomize overlays, so that there is one source of what is installed.

::

    python deploy/chart/generate.py build/chart     # writes build/chart/cotide, for helm package or helm install
    python deploy/chart/generate.py build/chart REGISTRY/cotide@sha256:...     # the same, of this image

Called by ``make chart``, and with an image by the release. Needs kubectl. Templates are the objects of
deploy/overlays/reclaimed, which hold those of all overlays, and those of deploy/consolidation, with the few fields that
values set put in; `Chart.yaml` and `values.yaml` beside this file are copied.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
SOURCES: Final = (ROOT / "deploy" / "overlays" / "reclaimed", ROOT / "deploy" / "consolidation")
NAMESPACE: Final = "cotide-system"
RELEASE: Final = "{{ .Release.Namespace }}"
ADMISSION: Final = '{{- if dig "admission" "enabled" false .Values.configuration }}'
CONSOLIDATION: Final = '{{- if hasKey .Values.configuration "consolidation" }}'
"""Also where it is turned off again: the operator then uncordons what it held."""
SEVERAL: Final = "{{- if gt (int .Values.replicas) 1 }}"
CONFIGURATION: Final = """\
{{- $configuration := deepCopy .Values.configuration }}
{{- $ours := dict "leaderElection" (dict "namespace" .Release.Namespace) }}
{{- if dig "admission" "enabled" false $configuration }}
{{- $_ := set $ours "admission" (dict "serviceNamespace" .Release.Namespace) }}
{{- end }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: cotide-configuration
  namespace: {{ .Release.Namespace }}
  labels:
    app.kubernetes.io/part-of: cotide
data:
  cotide.yaml: |
    {{- toYaml (mustMergeOverwrite $configuration $ours) | nindent 4 }}
"""
"""A Lease and a webhook's Service stand where the release does, whatever the values say."""
CONFIGURATION_FILE: Final = "configmap-cotide-configuration.yaml"
VALUES: Final = {
    "@IMAGE@": '"{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}'
    ':{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"',
    "@PULL@": "{{ .Values.image.pullPolicy }}",
    "@REPLICAS@": "{{ .Values.replicas }}",
    "@RESOURCES@": "{{- toYaml .Values.resources | nindent 12 }}",
    "@CHECKSUM@": f'{{{{ include (print $.Template.BasePath "/{CONFIGURATION_FILE}") . | sha256sum | quote }}}}',
}


def main(target: Path, image: str = "") -> int:
    """Write the chart into a folder cotide below the target, of an image ``REPOSITORY@DIGEST`` if one is named."""
    if image and re.fullmatch(r"[\w./:-]+@sha256:[0-9a-f]{64}", image) is None:
        sys.stderr.write(f"{image} is no image by digest: REPOSITORY@sha256:...\n")
        return 2
    chart = target / "cotide"
    if chart.exists():
        shutil.rmtree(chart)
    for folder in ("templates", "crds"):
        (chart / folder).mkdir(parents=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (HERE / "Chart.yaml").read_text(encoding="utf-8")
    version = project["version"]
    (chart / "Chart.yaml").write_text(f"{text}version: {version}\nappVersion: {version}\n", encoding="utf-8")
    (chart / "values.yaml").write_text(values(image), encoding="utf-8")
    for source in SOURCES:
        built = subprocess.run(["kubectl", "kustomize", str(source)], capture_output=True, text=True, check=False)
        if built.returncode != 0:
            sys.stderr.write(f"kubectl kustomize {source}: {built.stderr.strip()}\n")
            return 1
        for document in yaml.safe_load_all(built.stdout):
            write(document, chart)
    sys.stdout.write(f"{chart}\n")
    return 0


def values(image: str) -> str:
    """Return the values, with an image's repository and digest in their lines if one is given."""
    text = (HERE / "values.yaml").read_text(encoding="utf-8")
    if image:
        repository, _, digest = image.partition("@")
        for line, name, value in (("cotide", "repository", repository), ('""', "digest", digest)):
            if text.count(f"\n  {name}: {line}\n") != 1:
                raise ValueError(f"values.yaml has no line for image.{name}")
            text = text.replace(f"\n  {name}: {line}\n", f"\n  {name}: {value}\n")
    return text


def write(document: dict[str, Any], chart: Path) -> None:
    """Write an object where it belongs in the chart."""
    kind, name = document["kind"], document["metadata"]["name"]
    if kind == "Namespace":
        return  # the release's: helm install --create-namespace
    if kind == "CustomResourceDefinition":
        (chart / "crds" / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return
    if kind == "ConfigMap":
        name = "cotide-configuration"
    (chart / "templates" / f"{kind.lower()}-{name}.yaml").write_text(template(document), encoding="utf-8")


def template(document: dict[str, Any]) -> str:
    """Return an object as a template."""
    kind, name = document["kind"], document["metadata"]["name"]
    if kind == "ConfigMap":
        return CONFIGURATION
    if kind == "Deployment":
        _deployment(document)
    text = yaml.safe_dump(document, sort_keys=False, width=1000).replace(NAMESPACE, RELEASE)
    # A template that begins a value would be read as a map.
    text = re.sub(r"^(\s*(?:- )?[\w./-]+: )(\{\{ \.Release\.Namespace \}\})$", r'\1"\2"', text, flags=re.MULTILINE)
    text = re.sub(r"^(\s*- )(\{\{ \.Release\.Namespace \}\})$", r'\1"\2"', text, flags=re.MULTILINE)
    for mark, value in VALUES.items():
        text = re.sub(rf" ?'?{mark}'?", lambda _, value=value: value if value[:3] == "{{-" else f" {value}", text)
    condition = SEVERAL if kind == "PodDisruptionBudget" else ""
    for prefix, one in (("cotide-admission", ADMISSION), ("cotide-consolidation", CONSOLIDATION)):
        condition = one if name.startswith(prefix) else condition
    return f"{condition}\n{text}{{{{- end }}}}\n" if condition else text


def _deployment(document: dict[str, Any]) -> None:
    spec = document["spec"]
    spec["replicas"] = "@REPLICAS@"
    spec["template"]["metadata"].setdefault("annotations", {})["checksum/configuration"] = "@CHECKSUM@"
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    container |= {"image": "@IMAGE@", "imagePullPolicy": "@PULL@", "resources": "@RESOURCES@"}
    for volume in pod["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["name"] = "cotide-configuration"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/chart"), *sys.argv[2:3]))

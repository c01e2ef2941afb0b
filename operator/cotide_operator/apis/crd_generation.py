"""Our CustomResourceDefinitions, generated from the models.

``python -m cotide_operator.apis.crd_generation deploy/crds`` writes them; a test compares the committed files with the
generated text. Invariant: only names, columns and this module are written by hand.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cotide_operator.apis.names import GROUP, VERSION
from cotide_operator.apis.structural_schema import structural
from cotide_operator.apis.types import NAME_RULE, Job, Schema, Workload

Column = dict[str, Any]

HEADER: Final = "# Generated from operator/cotide_operator/apis/types.py by `make crds`; do not edit.\n"


@dataclass(frozen=True, slots=True)
class Resource:
    """The parts of a CRD that its schema lacks."""

    model: type[Schema]
    kind: str
    plural: str
    short_name: str
    columns: tuple[Column, ...]
    subresources: dict[str, Any]

    @property
    def crd_name(self) -> str:
        """Name of the CRD, and of the file."""
        return f"{self.plural}.{GROUP}"


def _column(name: str, kind: str, path: str, description: str, *, wide: bool = False) -> Column:
    column: Column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


_AGE: Final = _column("Age", "date", ".metadata.creationTimestamp", "Time since it was made.")

# Predicted times are columns of type string: kubectl shows a date in the future as <invalid>.
JOB: Final = Resource(
    Job,
    "Job",
    "jobs",
    "cjob",
    (
        _column("Class", "string", ".spec.class", "batch or gratis."),
        _column("Type", "string", ".spec.type", "The predictors learn by it."),
        _column("Phase", "string", ".status.phase", "Queued, Running, Succeeded or Failed."),
        _column("Done", "integer", ".status.succeeded", "Pods that succeeded."),
        _column("Of", "integer", ".spec.completions", "Pods that must succeed."),
        _column("Position", "integer", ".status.queuePosition", "Place in the queue; 1 is next."),
        _column("Predicted Start", "string", ".status.predictedStart", "When its next pod should start."),
        _column("Predicted Finish", "string", ".status.predictedFinish", "When it should be done."),
        _column("Reason", "string", '.status.conditions[?(@.type=="Scheduled")].reason', "Why it waits."),
        _column("Attempts", "integer", ".status.attempts", "Placement attempts.", wide=True),
        _column("Evictions", "integer", ".status.evictions", "Pods that lost their node.", wide=True),
        _column("Nodes", "string", ".status.nodes", "Where its pods run.", wide=True),
        _AGE,
    ),
    {"status": {}},
)
WORKLOAD: Final = Resource(
    Workload,
    "Workload",
    "workloads",
    "cwl",
    (
        _column("Ready", "string", ".status.ready", "Ready pods of wanted ones."),
        _column("RPS", "number", ".status.rps", "Requests per second."),
        _column("P95", "number", ".status.latencyP95Milliseconds", "Worst p95 latency of its pods, milliseconds."),
        _column("Limit", "number", ".spec.qos.latencyP95Milliseconds", "Promised p95 latency, milliseconds."),
        _column(
            "Decides", "string", ".status.decidedBy", "Basis of decisions on batch work next to it: Model or Heuristic."
        ),
        _column("Violations", "integer", ".status.violations", "Slots in which a pod broke the limit."),
        _column("Reason", "string", '.status.conditions[?(@.type=="Scheduled")].reason', "Why pods wait.", wide=True),
        _column("Exclusive", "boolean", ".spec.exclusive", "Nodes of its own.", wide=True),
        _column("Nodes", "string", ".status.nodes", "Where its pods run.", wide=True),
        _AGE,
    ),
    {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
)
RESOURCES: Final = (JOB, WORKLOAD)


def definition(resource: Resource) -> dict[str, Any]:
    """Return the CustomResourceDefinition of one resource."""
    schema = structural(resource.model)
    schema["x-kubernetes-validations"] = [NAME_RULE.as_validation()]
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **schema["properties"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.crd_name, "labels": {"app.kubernetes.io/part-of": "cotide"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [resource.short_name],
                "categories": ["cotide"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": resource.subresources,
                    "additionalPrinterColumns": list(resource.columns),
                }
            ],
        },
    }


def files() -> dict[str, str]:
    """Return file name to text for every generated file in ``deploy/crds``."""
    texts = {
        f"{resource.crd_name}.yaml": HEADER + yaml.dump(definition(resource), Dumper=_Plain, sort_keys=False, width=120)
        for resource in RESOURCES
    }
    listing = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(texts),
    }
    return {**texts, "kustomization.yaml": HEADER + yaml.safe_dump(listing, sort_keys=False)}


class _Plain(yaml.SafeDumper):
    """Writes repeated values in full: anchors are hard to read in a manifest."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never use an anchor."""
        del data
        return True


def main(arguments: list[str]) -> int:
    """Write the files into the given folder."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m cotide_operator.apis.crd_generation FOLDER\n")
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
        sys.stderr.write(f"wrote {folder / name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

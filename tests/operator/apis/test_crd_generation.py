"""The CRDs: generated, committed, structural, and saying the same as the models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from repository import ROOT

from cotide_operator.apis.crd_generation import JOB, RESOURCES, WORKLOAD, Resource, definition, files, main


def schema(resource: Resource) -> dict[str, Any]:
    version = definition(resource)["spec"]["versions"][0]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def walk(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from walk(node["additionalProperties"], f"{path}{{}}")


@pytest.mark.parametrize("name", sorted(files()))
def test_the_committed_file_is_what_the_models_say(name: str) -> None:
    committed = (ROOT / "deploy" / "crds" / name).read_text(encoding="utf-8")
    assert committed == files()[name], "run `make crds`"


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_the_schema_is_structural(resource: Resource) -> None:
    for path, node in walk(schema(resource)):
        if node.get("x-kubernetes-int-or-string"):
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
        elif path.endswith("{}") and node.get("x-kubernetes-preserve-unknown-fields"):
            assert not {"type", "anyOf"} & set(node), path  # an amount: a whole number, a fraction or a text
        else:
            assert node.get("type") in {"object", "array", "string", "integer", "number", "boolean"}, path
            assert "anyOf" not in node, path
        assert not {"$ref", "$defs", "title", "const", "x-not-null"} & set(node), path
        assert "default" not in node or node["default"] is not None, path
        for bound in ("exclusiveMinimum", "exclusiveMaximum"):
            assert node.get(bound, True) is True, path
        if "properties" in node:
            assert "additionalProperties" not in node, path


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_every_field_is_described(resource: Resource) -> None:
    described = [path for path, node in walk(schema(resource)) if path.startswith((".spec", ".status"))]
    assert all(
        "description" in node or path.endswith(("{}", "[]"))
        for path, node in walk(schema(resource))
        if path in described
    )


def at(resource: Resource, path: str) -> dict[str, Any]:
    return dict(walk(schema(resource)))[path]


def test_the_contract_with_users_is_in_the_schema() -> None:
    assert at(JOB, ".spec.class")["enum"] == ["batch", "gratis"]
    assert (at(JOB, ".spec.priority")["minimum"], at(JOB, ".spec.priority")["maximum"]) == (0, 1000)
    assert at(JOB, ".spec.priority")["default"] == 100
    assert at(WORKLOAD, ".spec.qos.latencyP95Milliseconds")["default"] == 10
    assert at(WORKLOAD, ".spec.exclusive")["default"] is False
    assert at(JOB, ".status.phase")["enum"] == ["Queued", "Running", "Succeeded", "Failed"]
    assert at(JOB, ".spec")["required"] == ["template"]
    assert at(JOB, ".spec.template.spec")["x-kubernetes-preserve-unknown-fields"] is True
    assert at(JOB, ".spec.template.spec")["required"] == ["containers"]
    for field in ("queuePosition", "attempts", "demotions", "evictions", "predictedStart", "predictedFinish", "nodes"):
        assert f".status.{field}" in dict(walk(schema(JOB)))
    for field in ("ready", "nodes", "rps", "latencyP95Milliseconds", "violations", "conditions"):
        assert f".status.{field}" in dict(walk(schema(WORKLOAD)))


def test_every_cel_rule_names_its_field_and_only_fields_that_exist() -> None:
    rules = [
        (path, rule)
        for resource in RESOURCES
        for path, node in walk(schema(resource))
        for rule in node.get("x-kubernetes-validations", ())
    ]
    assert len(rules) == 9  # the name of both, twice phases and the gang of the Job, three of the Workload's spec
    for path, rule in rules:
        assert "spec." in rule["message"] or "metadata.name" in rule["message"], rule
        if "fieldPath" in rule:
            known = {**dict(walk(schema(WORKLOAD))), **dict(walk(schema(JOB)))}
            assert path + rule["fieldPath"] in known, rule
        assert rule["rule"].count("(") == rule["rule"].count(")")


def test_fields_that_rules_ask_for_can_not_be_null() -> None:
    for path in (".spec.selector", ".spec.template", ".spec.replicas"):
        assert "nullable" not in at(WORKLOAD, path)
    assert at(JOB, ".spec.requestedSeconds")["nullable"] is True


def test_kubectl_finds_them_by_short_name_and_category() -> None:
    names = {resource.kind: definition(resource)["spec"]["names"] for resource in RESOURCES}
    assert names["Job"]["shortNames"] == ["cjob"]
    assert names["Workload"]["shortNames"] == ["cwl"]
    assert all(name["categories"] == ["cotide"] for name in names.values())
    assert definition(JOB)["metadata"]["name"] == "jobs.cotide.dev"


def test_columns_show_paths_that_exist() -> None:
    for resource in RESOURCES:
        known = dict(walk(schema(resource)))
        for column in definition(resource)["spec"]["versions"][0]["additionalPrinterColumns"]:
            path = column["jsonPath"]
            assert path.startswith(".metadata.") or path.partition("[")[0] in known, path


def test_the_generator_writes_every_file_and_explains_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "crds")]) == 0
    assert {path.name for path in (tmp_path / "crds").iterdir()} == set(files())
    assert all(list(yaml.safe_load_all(text)) for text in files().values())
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err

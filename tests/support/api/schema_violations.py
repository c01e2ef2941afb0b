"""One bad resource for each constraint of our CRDs' schemas, made from the schemas themselves.

Called by tests that a server refuses each with a sentence that names the field. CEL rules have no such way: cases for
them stand in `refused_resources`, and `rules` lists them, so that a test sees one without a case.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml
from repository import ROOT

DEFINITIONS: Final = ROOT / "deploy" / "crds"
POD: Final = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
NOW: Final = "2026-01-01T00:00:00Z"
CONDITION: Final = {"type": "Scheduled", "status": "True", "lastTransitionTime": NOW}
GOOD: Final[dict[str, dict[str, Any]]] = {
    "jobs": {"spec": {"template": POD}, "status": {"conditions": [CONDITION]}},
    "workloads": {"spec": {"template": POD}, "status": {"conditions": [CONDITION]}},
}
PHASE: Final[dict[str, Any]] = {"name": "p", "resources": {"cpu": "1"}}
EXPRESSION: Final = {"key": "app", "operator": "In", "values": ["x"]}

Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Violation:
    """A resource with one mistake.

    Attributes
    ----------
    plural, body : the resource, as it is sent; of a status, what the status is to be.
    words : what the refusal must say, the field first.
    """

    plural: str
    case: str
    body: dict[str, Any]
    words: tuple[str, ...]

    @property
    def of_status(self) -> bool:
        """Whether the status subresource must refuse it; a creation drops it."""
        return self.case.startswith("status")


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each of our kinds by its plural."""
    found = {}
    for plural in GOOD:
        document = yaml.safe_load((DEFINITIONS / f"{plural}.cotide.dev.yaml").read_text(encoding="utf-8"))
        (version,) = document["spec"]["versions"]
        found[plural] = version["schema"]["openAPIV3Schema"]
    return found


def rules() -> set[str]:
    """Return the messages of all CEL rules."""
    return {rule["message"] for schema in schemas().values() for rule in _rules(schema)}


def _rules(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from schema.get("x-kubernetes-validations", ())
    for child in _children(schema):
        yield from _rules(child[1])


def violations() -> list[Violation]:
    """Return one for each constraint."""
    return [one for plural, schema in schemas().items() for one in _walk(plural, schema, ())]


def _children(schema: dict[str, Any]) -> Iterator[tuple[str | int, dict[str, Any]]]:
    yield from (schema.get("properties") or {}).items()
    if isinstance(schema.get("items"), dict):
        yield 0, schema["items"]


def _walk(plural: str, schema: dict[str, Any], path: Path_) -> Iterator[Violation]:
    for name in schema.get("required", ()):
        yield _with(plural, (*path, name), "required", None, "Required value")
    for keyword, value, words in _broken(schema):
        yield _with(plural, path, keyword, value, words)
    for name, child in _children(schema):
        yield from _walk(plural, child, (*path, name))


def shown(bound: float) -> str:
    """A bound in the words of a server: whole numbers in full, others in Go's shortest form."""
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _broken(schema: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield keyword, a value that breaks it and nothing before it, and the server's words."""
    if "enum" in schema:
        yield "enum", "nonsense", 'Unsupported value: "nonsense": supported values: '
    if "minimum" in schema:
        least, exclusive = schema["minimum"], schema.get("exclusiveMinimum", False)
        words = f"should be greater than {'' if exclusive else 'or equal to '}{least}"
        yield "minimum", least if exclusive else least - 1, words
    if "maximum" in schema:
        yield "maximum", schema["maximum"] + 1, f"should be less than or equal to {shown(schema['maximum'])}"
    if "pattern" in schema:
        yield "pattern", "no, no", "should match"
    if "maxLength" in schema:
        yield "maxLength", "x" * (schema["maxLength"] + 1), "Too long: may not be more than"
    if "minLength" in schema:
        yield "minLength", "", f"should be at least {schema['minLength']} chars long"
    if "maxItems" in schema:
        most = schema["maxItems"]
        yield "maxItems", [_item(schema["items"], number) for number in range(most + 1)], "Too many: "
    if "minItems" in schema:
        yield "minItems", [], f"should have at least {schema['minItems']} items"
    if "maxProperties" in schema:
        yield "maxProperties", {f"k{n}": "v" for n in range(schema["maxProperties"] + 1)}, "at most 64"
    if schema.get("format") == "date-time":
        yield "format", "yesterday", "must be of type date-time"


def _item(schema: dict[str, Any], number: int) -> Any:
    """Return an item that is good by itself."""
    if schema["type"] == "string":
        return f"v{number}"
    if "key" in schema["properties"]:
        return {**EXPRESSION, "key": f"k{number}"}
    if "resources" in schema["properties"]:
        return {**PHASE, "name": f"p{number}"}
    return {"name": f"c{number}", "image": "x"}


def _with(plural: str, path: Path_, keyword: str, value: Any, words: str) -> Violation:
    """Return a good resource with one field changed, or taken away."""
    body: Any = copy.deepcopy(GOOD[plural])
    if "selector" in path:
        body["spec"] = {"selector": {"matchLabels": {"app": "x"}, "matchExpressions": [dict(EXPRESSION)]}}
    if "phases" in path:
        body["spec"]["phases"] = [copy.deepcopy(PHASE)]
    at = body
    for step in path[:-1]:
        at = at[step] if isinstance(step, int) else at.setdefault(step, {})
    if value is None:
        at.pop(path[-1])
    else:
        at[path[-1]] = value
    shown = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return Violation(plural, f"{shown} {keyword}", body, (f"{shown}: ", words))


async def refusal(client: Any, namespace: str, violation: Violation) -> str:
    """Return what a server has against a resource; empty when it takes it."""
    from cotide_kube.answers import ApiError

    kind = {"jobs": "Job", "workloads": "Workload"}[violation.plural]
    head = {"apiVersion": "cotide.dev/v1alpha1", "kind": kind}
    path = f"/apis/cotide.dev/v1alpha1/namespaces/{namespace}/{violation.plural}"
    try:
        if not violation.of_status:
            body = {key: value for key, value in violation.body.items() if key != "status"}
            await client.create(path, {**head, "metadata": {"name": "bad"}, **body}, {"dryRun": "All"})
            return ""
        good = {"spec": GOOD[violation.plural]["spec"]}
        made = await client.create(path, {**head, "metadata": {"generateName": "good-"}, **good})
        name = made["metadata"]["name"]
        await client.patch(f"{path}/{name}/status", {"status": violation.body["status"]}, "merge", {"dryRun": "All"})
    except ApiError as error:
        return f"{error.status} {error}"
    return ""

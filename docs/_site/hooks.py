"""Hooks of the docs site: the home page is the README, reference pages are generated, the nav lists every page.

Run by mkdocs (`make docs`). Invariant: a page that no section names fails the strict build, so no page gets lost.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from results import read_results, result_pages

ROOT: Final = Path(__file__).resolve().parents[2]
SECTIONS: Final = {
    "Start": ("quickstart", "install", "compatibility"),
    "Guide": (
        "guide/concepts", "guide/policies", "guide/workloads-and-jobs", "guide/predictions", "guide/explain",
        "guide/monitoring", "guide/operations", "guide/configuration", "guide/adoption", "guide/kind", "guide/tenancy",
        "guide/upgrades",
    ),
    "Features": (
        "features/reclaimed-capacity", "features/node-agent", "features/gangs", "features/preemption",
        "features/phases", "features/consolidation", "features/capacity", "features/placement", "features/extender",
        "features/admission", "features/profile",
    ),
    "Research": (
        "research/quickstart", "research/traces", "research/simulation", "research/experiments",
        "research/predictor-lab", "research/write-a-policy", "research/write-a-predictor", "research/emulator",
    ),
    "Reference": (
        "reference/configuration", "reference/command", "reference/resources", "reference/metrics",
    ),
    "Design": (
        "design/architecture", "design/slack", "design/qos-model", "design/forecasts", "design/live-plans",
        "design/phases", "design/consolidation", "design/capacity", "design/offline", "design/bounds",
        "design/testing", "design/benchmarks", "design/references",
    ),
}  # fmt: skip
"""Pages by section, in order. Pages of results follow, one for each file of figures."""


OUTSIDE: Final = re.compile(
    r"\[([^\]]*)\]\((?:\.\./)*(?:LICENSE|[A-Z_]+\.md|(?:deploy|examples|operator|predictors|sim|tests|benchmarks)/)[^)]*\)"
)
"""Links to files of the repository outside the docs."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the nav: the sections above, then the results."""
    nav: list[Any] = [{"Home": "index.md"}]
    for section, pages in SECTIONS.items():
        nav.append({section: [f"{page}.md" for page in pages]})
    results = ["results/index.md", *(f"results/{name}.md" for name in read_results(ROOT / "docs" / "results"))]
    nav.append({"Results": results})
    config["nav"] = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as home and the generated reference pages."""
    readme = (ROOT / "README.md").read_text()
    pages = {
        "index.md": re.sub(r"\]\(docs/", "](", readme),
        "reference/metrics.md": metrics_page(),
        "reference/command.md": command_page(),
        "reference/resources.md": resources_page(),
        "reference/configuration.md": configuration_page(),
        **result_pages(read_results(ROOT / "docs" / "results")),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show files of the repository that are no pages by their names."""
    del page, config, files
    return OUTSIDE.sub(lambda link: link.group(1), markdown)


def metrics_page() -> str:
    """Return the page of all metrics of the operator, from its registry."""
    from cotide_operator.observability.metrics import Metrics

    rows = ["# Metrics", "", "All metrics on `/metrics` of the operator, from the code.", ""]
    rows += ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    collectors = Metrics().registry._collector_to_names
    for collector in sorted(collectors, key=lambda one: getattr(one, "_name", "")):
        if not hasattr(collector, "_name"):
            continue
        name = f"{collector._name}_total" if collector._type == "counter" else collector._name
        labels = ", ".join(f"`{label}`" for label in collector._labelnames) or "-"
        rows.append(f"| `{name}` | {collector._type} | {labels} | {_cell(collector._documentation)} |")
    return "\n".join(rows) + "\n"


def command_page() -> str:
    """Return the page of the command line, from click."""
    import click

    from cotide_cli.main import cotide

    out = ["# The command", ""]

    def walk(command: click.Command, path: str) -> None:
        context = click.Context(command, info_name=path)
        out.extend([f"## `{path}`", "", "```text", command.get_help(context), "```", ""])
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None:
                    walk(child, f"{path} {name}")

    walk(cotide, "cotide")
    return "\n".join(out)


def resources_page() -> str:
    """Return the page of the custom resources, from the generated definitions."""
    out = ["# Custom resources", "", "From `deploy/crds`, which is generated from the models in code.", ""]
    for path in sorted((ROOT / "deploy" / "crds").glob("*.cotide.dev.yaml")):
        definition = yaml.safe_load(path.read_text())
        names = definition["spec"]["names"]
        out += [f"## {names['kind']}", "", "| field | type | meaning |", "|---|---|---|"]
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            _fields(schema["properties"].get(part, {}), part, out)
        out.append("")
    return "\n".join(out)


def _fields(schema: dict[str, Any], path: str, out: list[str]) -> None:
    for name, field in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        bounds = [f"{key} {field[key]}" for key in ("minimum", "maximum", "maxLength", "maxItems") if key in field]
        if "default" in field:
            bounds.append(f"default {field['default']}")
        kind = field.get("type", "int or string" if field.get("x-kubernetes-int-or-string") else "any")
        meaning = "; ".join(part for part in (_cell(field.get("description", "")), ", ".join(bounds)) if part)
        out.append(f"| `{where}` | {kind} | {meaning} |")
        _fields(field, where, out)
        if isinstance(field.get("items"), dict):
            _fields(field["items"], f"{where}[]", out)


def configuration_page() -> str:
    """Return the page of all settings, from the models."""
    from cotide_operator.config.settings import Settings

    schema = Settings.model_json_schema(by_alias=True)
    out = [
        "# All settings",
        "",
        "Generated from the models; [Configuration](../guide/configuration.md) explains the choices.",
        "",
    ]
    out += ["| setting | type | default | meaning |", "|---|---|---|---|"]

    def walk(node: dict[str, Any], path: str, seen: tuple[str, ...]) -> None:
        for name, field in node.get("properties", {}).items():
            target, ref = field, None
            for candidate in (field, *field.get("allOf", ()), *field.get("anyOf", ())):
                for inside in (candidate, candidate.get("items"), candidate.get("additionalProperties")):
                    ref = inside.get("$ref", ref) if isinstance(inside, dict) else ref
            where = f"{path}{name}"
            if ref is not None:
                key = ref.rsplit("/", 1)[-1]
                target = schema["$defs"][key]
                if "properties" in target and key not in seen:
                    walk(target, f"{where}.", (*seen, key))
                    continue
            kind = target.get("type") or (
                "one of " + ", ".join(map(str, target["enum"])) if "enum" in target else "any"
            )
            default = "required" if "default" not in field else f"`{field['default']}`"
            out.append(f"| `{where}` | {kind} | {default} | {_cell(field.get('description', ''))} |")

    walk(schema, "", ())
    return "\n".join(out) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")

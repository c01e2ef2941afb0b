"""What a release is made of: its workflow runs commands that exist, names images by digest, and lists every part."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from repository import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, re.MULTILINE))
DIGEST = f"sha256:{'0f' * 32}"
IMAGE = f"ghcr.io/owner/cotide@{DIGEST}"


def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    return found


def steps(job: str) -> list[dict[str, Any]]:
    return list(jobs()[job]["steps"])


def script(job: str, name: str) -> str:
    """A step's script, with what the workflow puts in for an image."""
    (found,) = [step["run"] for step in steps(job) if step.get("name", step.get("run")) == name]
    for key, value in (("name", IMAGE.partition("@")[0]), ("digest", DIGEST)):
        found = found.replace(f"${{{{ steps.image.outputs.{key} }}}}", value)
    assert "${{" not in found
    return str(found)


def test_what_is_published_was_tested_with_no_more_rights_than_it_takes() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    assert jobs()["publish"]["needs"] == "test"
    assert jobs()["test"]["permissions"] == {"contents": "read"}
    tested = {step["run"] for step in steps("test") if "run" in step}
    assert {"make check", "make docs", "make test", "make test-real"} <= tested


def test_workflows_run_only_actions_of_github_each_at_one_commit() -> None:
    files = sorted(WORKFLOW.parent.glob("*.yml"))
    used = [line for file in files for line in re.findall(r"uses: (.*)", file.read_text(encoding="utf-8"))]
    assert {file.name for file in files} == {"ci.yml", "release.yml"}
    assert len(used) >= 5
    assert [line for line in used if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_continuous_integration_runs_the_one_script_without_rights_to_write() -> None:
    workflow = yaml.safe_load((WORKFLOW.parent / "ci.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    assert workflow["permissions"] == {"contents": "read"}
    assert [step["run"] for step in job["steps"] if "run" in step] == ["bash .ci/run"]


def test_it_runs_commands_that_the_makefile_has_and_scripts_that_parse() -> None:
    scripts = [step["run"] for job in jobs() for step in steps(job) if "run" in step]
    named = {name for text in scripts for name in re.findall(r"\bmake ([a-z-]+)", text)}
    assert {"wheel", "chart", "sbom", "test-image"} <= named <= TARGETS
    for text in scripts:
        done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (text, done.stderr)


@pytest.mark.parametrize(("suffix", "code"), [("", 0), (".post9", 1)])
def test_a_tag_that_is_not_the_version_is_refused(suffix: str, code: int) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    text = script("test", "The tag is the version that pyproject.toml names").replace("python3", sys.executable)
    environment = {"GITHUB_REF_NAME": f"v{version}{suffix}", "PATH": "/usr/bin:/bin"}
    assert subprocess.run(["bash", "-ec", text], cwd=ROOT, env=environment, check=False).returncode == code


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs the kubectl binary")
def test_its_manifests_name_no_image_by_a_tag(tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "dist").mkdir()
    subprocess.run(["bash", "-ec", script("publish", "Manifests with the image by digest")], cwd=tmp_path, check=True)
    for overlay in ("prod", "reclaimed"):
        text = (tmp_path / "dist" / f"cotide-{overlay}.yaml").read_text(encoding="utf-8")
        assert set(re.findall(r"image: (\S+)", text)) == {IMAGE}
        assert "CustomResourceDefinition" in {one["kind"] for one in yaml.safe_load_all(text)}


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs the kubectl binary")
def test_its_chart_names_the_image_by_digest_and_is_else_the_same(tmp_path: Path) -> None:
    program = str(ROOT / "deploy" / "chart" / "generate.py")
    subprocess.run([sys.executable, program, str(tmp_path / "plain")], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, program, str(tmp_path / "named"), IMAGE], check=True, stdout=subprocess.DEVNULL)
    plain, named = (
        yaml.safe_load((tmp_path / one / "cotide" / "values.yaml").read_text(encoding="utf-8"))
        for one in ("plain", "named")
    )
    assert named["image"] == {**plain["image"], "repository": IMAGE.partition("@")[0], "digest": DIGEST}
    assert {**named, "image": None} == {**plain, "image": None}
    template = (tmp_path / "named" / "cotide" / "templates" / "deployment-cotide-operator.yaml").read_text("utf-8")
    assert "@{{ . }}" in template


def test_a_chart_of_an_image_without_a_digest_is_refused_in_a_line(tmp_path: Path) -> None:
    program = str(ROOT / "deploy" / "chart" / "generate.py")
    command = [sys.executable, program, str(tmp_path), "ghcr.io/owner/cotide:1.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "ghcr.io/owner/cotide:1.0.0 is no image by digest: REPOSITORY@sha256:...\n"


def test_its_parts_list_names_each_package_that_the_image_installs_with_its_hashes(tmp_path: Path) -> None:
    recipe = MAKEFILE[MAKEFILE.index("\nsbom:") :].split("\n\n")[0].replace("\\\n", " ")
    (line,) = [one for one in recipe.splitlines() if "cyclonedx-py" in one]
    target = tmp_path / "cotide.cdx.json"
    command = line.replace("$(BIN)", str(Path(sys.executable).parent)).replace(
        "build/sbom/cotide.cdx.json", str(target)
    )
    subprocess.run(["bash", "-ec", command], cwd=ROOT, check=True)
    listed = json.loads(target.read_text(encoding="utf-8"))
    assert listed["metadata"]["component"]["name"] == "cotide"
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    wanted = {
        (name, version): set(re.findall(r"sha256:([0-9a-f]{64})", hashes))
        for name, version, hashes in re.findall(
            r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text, re.MULTILINE
        )
    }
    found = {
        (one["name"], one["version"]): {
            each["content"] for reference in one.get("externalReferences", ()) for each in reference.get("hashes", ())
        }
        for one in listed["components"]
    }
    assert found == wanted
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split()[0].split("==") for line in lines if "==" in line and not line.startswith("#"))
    assert plain(found) <= plain(pinned.items())


def plain(packages: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Names as the package index compares them, with versions."""
    return {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in packages}


def test_nightly_runs_all_that_takes_long_and_goes_on_when_a_step_fails() -> None:
    (named,) = re.findall(r"^NIGHTLY \?= (.*)$", MAKEFILE, re.MULTILINE)
    long = {
        "test-real",
        "test-kueue",
        "test-cluster-api",
        "test-newer",
        "test-node",
        "test-kubelets",
        "test-image",
        "test-chaos",
        "test-poison",
        "test-crowd",
        "test-upstream",
        "bench-upstream",
        "search",
        "soak",
        "fuzz",
        "mutants",
    }
    assert set(named.split()) == long <= TARGETS
    assert named.split().count("test-node") == 2, "the second run finds what the first left"
    recipe = MAKEFILE[MAKEFILE.index("\nnightly:") :].split("\n\n")[0]
    text = "\n".join(recipe.splitlines()[2:]).replace("\n\t", "\n").lstrip("\t@")
    text = text.replace("$(NIGHTLY)", "good bad last").replace("$(MAKE) --no-print-directory", "step")
    text = re.sub(r"\$\(NIGHTLY_\w+\)", "1", text).replace("$$", "$")
    done = subprocess.run(
        ["bash", "-c", f"step() {{ echo ran $1; test $1 != bad; }}\n{text}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("ran")] == ["ran good", "ran bad", "ran last"]
    assert (done.returncode, done.stderr) == (1, "nightly: failed: bad\n")

"""deploy/ and examples/: every file parses, every reference exists, nothing more is granted than used."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import pages
from repository import ROOT

from cotide_core.classes import SHIPPED_PRIORITY_CLASSES
from cotide_operator.apis.types import read_job, read_workload
from cotide_operator.cache.object_cache import PATHS
from cotide_operator.cache.preflight import PRIORITIES
from cotide_operator.config.host_load_settings import AdmissionSettings
from cotide_operator.config.settings import read_settings
from cotide_operator.observability.http_server import BOARD
from cotide_operator.webhooks.admission.server import PATH

DEPLOY, EXAMPLES = ROOT / "deploy", ROOT / "examples"
KUSTOMIZATIONS = sorted(DEPLOY.rglob("kustomization.yaml"))
CHART = DEPLOY / "chart"
"""Not manifests: values, and what templates are made with (see test_chart)."""
MANIFESTS = sorted([*(path for path in DEPLOY.rglob("*.yaml") if path.parent != CHART), *EXAMPLES.glob("*.yaml")])


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def documents(*paths: Path) -> Iterator[dict[str, Any]]:
    for path in paths:
        yield from (document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document)


def found(kind: str, name: str) -> dict[str, Any]:
    return next(
        document
        for document in documents(*MANIFESTS)
        if document["kind"] == kind and document["metadata"]["name"] == name
    )


@pytest.mark.parametrize("path", MANIFESTS, ids=short)
def test_every_manifest_parses_and_names_its_kind(path: Path) -> None:
    for document in documents(path):
        assert document["apiVersion"]
        assert document["kind"]


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=short)
def test_every_kustomization_names_files_that_exist(path: Path) -> None:
    body = next(documents(path))
    names = [*body.get("resources", ()), *body.get("components", ())]
    names += [patch["path"] for patch in body.get("patches", ())]
    names += [name for generator in body.get("configMapGenerator", ()) for name in generator["files"]]
    assert names or body["kind"] == "Component"
    for name in names:
        target = path.parent / name
        assert target.is_file() or (target / "kustomization.yaml").is_file(), name


def test_the_image_is_named_in_one_place_by_the_version_of_the_project() -> None:
    """An overlay of one's own may name another; that for kind has what was built a moment ago."""
    named = {
        (short(path.parent), one["name"], one.get("newTag"))
        for path in KUSTOMIZATIONS
        for one in next(documents(path)).get("images", ())
    }
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert named == {("deploy/image", "cotide", version), ("deploy/overlays/kind", "cotide", "dev")}
    using = {short(path.parent) for path in KUSTOMIZATIONS if "../image" in next(documents(path)).get("components", ())}
    workloads = {
        short(path.parent) for path in MANIFESTS if re.search(r"image: cotide$", path.read_text(), flags=re.MULTILINE)
    }
    assert using == workloads


def test_every_file_of_a_kustomized_folder_is_used() -> None:
    for path in KUSTOMIZATIONS:
        text = path.read_text(encoding="utf-8")
        unused = {other.name for other in path.parent.glob("*.yaml")} - {"kustomization.yaml", "cluster.yaml"}
        assert all(name in text for name in unused), (path, unused)


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("cotide.yaml")), ids=short)
def test_the_shipped_configurations_are_accepted(path: Path) -> None:
    settings = read_settings(path)
    reclaims = path.parent.name == "reclaimed"
    assert settings.policy == "predictive"
    assert (settings.publishes_reclaimed, settings.admission.enabled) == (reclaims, reclaims)


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs the kubectl binary")
@pytest.mark.parametrize(
    "folder",
    [
        "crds",
        "rbac",
        "base",
        "admission",
        "consolidation",
        "provisioning",
        "provisioning-scales-down",
        "node-agent",
        "overlays/kind",
        "overlays/prod",
        "overlays/reclaimed",
        "overlays/extender-host-network",
    ],
)
def test_kubectl_builds_it(folder: str) -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert built.returncode == 0, built.stderr
    assert all(document["kind"] for document in yaml.safe_load_all(built.stdout))


def test_the_operator_runs_with_as_little_as_it_can() -> None:
    pod = found("Deployment", "cotide-operator")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["schedulerName"] == "default-scheduler"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["resources"]["requests"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_the_node_agent_only_reads_the_api_and_needs_no_more_than_to_own_control_groups() -> None:
    rules = found("ClusterRole", "cotide-node-agent")["rules"]
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [(["pods", "nodes"], ["list", "watch"])]
    pod = found("DaemonSet", "cotide-node-agent")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in container["securityContext"]
    assert {volume["hostPath"]["path"] for volume in pod["volumes"]} == {"/sys/fs/cgroup", "/run/cotide"}


def test_only_scrapers_and_the_api_server_reach_the_operator() -> None:
    policy = found("NetworkPolicy", "cotide-operator")
    assert policy["metadata"]["namespace"] == "cotide-system"
    deployment = found("Deployment", "cotide-operator")["spec"]["template"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= deployment["metadata"]["labels"].items()
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    allowed = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}
    # Who asks the extender is said beside it, by those who want one.
    asking = {rule["ports"][0]["port"] for rule in found("NetworkPolicy", "cotide-extender")["spec"]["ingress"]}
    assert asking == {"extender"}
    assert set(allowed) | asking == {one["name"] for one in deployment["spec"]["containers"][0]["ports"]}
    assert allowed["admission"] is None  # the API server's address is no pod's
    assert all(set(peer) == {"namespaceSelector"} for peer in allowed["metrics"])


def test_the_extender_answers_any_address_only_where_clients_show_a_certificate() -> None:
    rules = found("NetworkPolicy", "cotide-extender")["spec"]["ingress"]
    assert all(rule["from"] for rule in rules)
    overlay = DEPLOY / "overlays" / "extender-host-network"
    open_policies = {
        path.parent
        for path in MANIFESTS
        for document in documents(path)
        if document["kind"] == "NetworkPolicy"
        for rule in document["spec"]["ingress"]
        if "from" not in rule and rule["ports"][0]["port"] == "extender"
    }
    assert open_policies == {overlay}
    authority = read_settings(overlay / "cotide.yaml").extender.client_authority
    pod = next(documents(overlay / "client-authority.yaml"))["spec"]["template"]["spec"]
    (mount,), (volume,) = pod["containers"][0]["volumeMounts"], pod["volumes"]
    assert authority is not None
    assert str(authority.parent) == mount["mountPath"]
    assert volume["name"] == mount["name"]
    assert "optional" not in volume["secret"]


def test_debug_pages_are_a_role_that_nobody_is_bound_to() -> None:
    role = found("ClusterRole", "cotide-debug")
    assert role["rules"] == [{"nonResourceURLs": [BOARD], "verbs": ["get"]}]
    bindings = [document for document in documents(*MANIFESTS) if document["kind"].endswith("RoleBinding")]
    assert all(binding["roleRef"]["name"] != "cotide-debug" for binding in bindings)


def test_rights_are_named_one_by_one_and_touch_no_secrets() -> None:
    learned = found("Role", "cotide-learned")  # what was learned lies in ConfigMaps of the operator's own namespace
    assert learned["metadata"]["namespace"] == "cotide-system"
    assert [rule["resources"] for rule in learned["rules"]] == [["configmaps"]]
    manifests = documents(*sorted((DEPLOY / "rbac").glob("*.yaml")))
    rules = [rule for manifest in manifests if manifest != learned for rule in manifest.get("rules", ())]
    for rule in [rule for rule in rules if "nonResourceURLs" not in rule]:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], rule
        assert not {"secrets", "configmaps", "roles", "clusterroles"} & set(rule["resources"]), rule
        assert not {"escalate", "impersonate", "bind", "deletecollection"} & set(rule["verbs"]), rule


@pytest.mark.parametrize("role", ["cotide-operator", "cotide-shadow"])
def test_whoever_follows_a_kind_may_list_and_watch_it(role: str) -> None:
    granted = {
        (group, resource)
        for rule in found("ClusterRole", role)["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
    }
    for path in PATHS.values():
        *parts, resource = path.split("/")[2:]
        group = parts[0] if path.startswith("/apis/") else ""
        assert (group, resource) in granted, path


def test_the_webhook_is_shown_only_what_namespaces_ask_for_and_never_blocks() -> None:
    (hook,) = found("MutatingWebhookConfiguration", "cotide-admission")["webhooks"]
    assert hook["failurePolicy"] == "Ignore"
    assert hook["sideEffects"] == "None"
    assert hook["timeoutSeconds"] <= 5
    assert hook["admissionReviewVersions"] == ["v1"]
    (rule,) = hook["rules"]
    assert (rule["operations"], rule["apiGroups"], rule["resources"]) == (["CREATE"], [""], ["pods"])
    assert hook["namespaceSelector"]["matchLabels"] == {"cotide.dev/reclaim": "enabled"}
    (term,) = hook["namespaceSelector"]["matchExpressions"]
    assert (term["key"], term["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    assert {"kube-system", "cotide-system"} <= set(term["values"])


def test_the_webhook_leads_to_the_port_that_the_operator_listens_on() -> None:
    (hook,) = found("MutatingWebhookConfiguration", "cotide-admission")["webhooks"]
    wanted, settings = hook["clientConfig"]["service"], AdmissionSettings()
    assert wanted["path"] == PATH
    assert (wanted["name"], wanted["namespace"]) == (settings.service_name, settings.service_namespace)
    service = found("Service", wanted["name"])
    assert service["metadata"]["namespace"] == wanted["namespace"]
    (port,) = service["spec"]["ports"]
    assert port["port"] == wanted["port"]
    deployment = found("Deployment", "cotide-operator")["spec"]["template"]
    assert service["spec"]["selector"].items() <= deployment["metadata"]["labels"].items()
    ports = {one["name"]: one["containerPort"] for one in deployment["spec"]["containers"][0]["ports"]}
    assert ports[port["targetPort"]] == settings.port


def test_the_webhook_may_touch_one_secret_and_one_configuration() -> None:
    rules = [rule for document in documents(DEPLOY / "admission" / "rbac.yaml") for rule in document.get("rules", ())]
    granted = {
        (resource, verb, *rule.get("resourceNames", ()))
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        ("secrets", "create"),
        ("secrets", "get", "cotide-admission-certificate"),
        ("secrets", "update", "cotide-admission-certificate"),
        ("mutatingwebhookconfigurations", "get", "cotide-admission"),
        ("mutatingwebhookconfigurations", "patch", "cotide-admission"),
    }
    # The Secret is one of the operator's own namespace: no rule of the cluster names secrets.
    assert [document["kind"] for document in documents(DEPLOY / "admission" / "rbac.yaml")] == [
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ]


def test_priority_classes_are_those_that_the_operator_installs() -> None:
    shipped = {
        document["metadata"]["name"]: document for document in documents(DEPLOY / "base" / "priority-classes.yaml")
    }
    parts = ("value", "preemptionPolicy", "description")
    assert {name: tuple(one[part] for part in parts) for name, one in shipped.items()} == PRIORITIES
    assert list(shipped) == list(SHIPPED_PRIORITY_CLASSES)


def test_no_shipped_priority_class_displaces_another_pod() -> None:
    """Any tenant may name a PriorityClass; a class of lower rank has a lower value."""
    values = [PRIORITIES[name].value for name in SHIPPED_PRIORITY_CLASSES]
    assert values == sorted(values, reverse=True)
    assert {one.preemption_policy for one in PRIORITIES.values()} == {"Never"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=short)
def test_examples_are_what_our_resources_accept(path: Path) -> None:
    for document in documents(path):
        if document["kind"] == "Job":
            assert read_job(document).completions >= 1
        elif document["kind"] == "Workload":
            assert read_workload(document).qos.latency_p95_milliseconds > 0
        else:
            assert document["spec"]["schedulerName"] == "cotide"
        assert path.read_text(encoding="utf-8").startswith("# ")


def test_the_image_is_pinned_built_in_two_stages_and_not_run_as_root() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    stages = re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)
    assert len(stages) == 2
    assert re.search(r"^ARG PYTHON=\d+\.\d+\.\d+-slim-\w+$", text, flags=re.MULTILINE)
    assert "--constraint constraints.txt" in text
    assert "--require-hashes --no-deps --requirement requirements.lock" in text
    assert re.search(r"^USER 65532:65532$", text, flags=re.MULTILINE)
    copied = set(re.findall(r"^COPY (?!--)([\w./ -]+) \S+$", text, flags=re.MULTILINE))
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
    assert {name for names in copied for name in names.split()} == kept


def test_the_image_s_packages_are_those_of_the_constraints_by_hash_and_name_no_host() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if "==" in line and not line.startswith("#"):
            name, _, version = line.partition("==")
            pinned[re.sub(r"[-_.]+", "-", name).lower()] = version.split()[0]
    entries = re.findall(r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text, flags=re.MULTILINE)
    found = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version, _ in entries}
    assert len(found) == text.count("==") > 50
    assert {name: pinned[name] for name in found} == found
    assert "://" not in text


def test_no_page_edits_a_configmap_whose_name_carries_a_hash() -> None:
    made = {
        generated["name"]
        for path in DEPLOY.rglob("kustomization.yaml")
        for document in documents(path)
        for generated in document.get("configMapGenerator", [])
        if not document.get("generatorOptions", {}).get("disableNameSuffixHash")
    }
    assert "cotide-configuration" in made
    named = {(page, name) for page, text in pages().items() for name in made if f"configmap {name}" in text}
    assert not named

"""Resources that an API server must refuse, and in which words: one list for the emulator and for a real server."""

from __future__ import annotations

from typing import Any, Final

TEMPLATE: Final = {"spec": {"containers": [{"name": "web", "image": "nginx"}]}}
SELECTOR: Final = {"matchLabels": {"app": "web"}}
ONE_WAY: Final = "give either spec.selector, to adopt pods, or spec.template, to let Cotide run them, and not both"
REPLICAS: Final = (
    "spec.replicas: Invalid value: spec.replicas needs spec.template: adopted pods are scaled by their "
    "Deployment or StatefulSet"
)
NO_LABEL: Final = (
    "spec.selector: Invalid value: spec.selector must name at least one label: an empty one would mean every pod of "
    "the namespace"
)
TOO_LONG: Final = "metadata.name must have at most 63 characters: it becomes a label of the pods"
AT_MOST: Final = "should be less than or equal to"
AT_LEAST: Final = "should be greater than or equal to"


def _job_spec(**fields: Any) -> dict[str, Any]:
    return {"template": TEMPLATE, **fields}


def _pods(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "web", "image": "nginx"}], **fields}}


def _asking(**resources: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "web", "image": "nginx", "resources": resources}]}}


REFUSED: Final[dict[str, tuple[str, str, dict[str, Any], str]]] = {
    # What it is: plural, name, spec, the sentence.
    "selector and template": (
        "workloads",
        "w",
        {"selector": SELECTOR, "template": TEMPLATE},
        f"Invalid value: {ONE_WAY}",
    ),
    "neither of them": (
        "workloads",
        "w",
        {"qos": {"latencyP95Milliseconds": 5}},
        f"spec.selector: Invalid value: {ONE_WAY}",
    ),
    "replicas of adopted pods": ("workloads", "w", {"selector": SELECTOR, "replicas": 2}, REPLICAS),
    "an empty selector": ("workloads", "w", {"selector": {}}, NO_LABEL),
    "a selector without a label": ("workloads", "w", {"selector": {"matchLabels": {}}}, NO_LABEL),
    "a Workload's name of 64": ("workloads", "w" * 64, {"template": TEMPLATE}, TOO_LONG),
    "a Job's name of 64": ("jobs", "j" * 64, _job_spec(), TOO_LONG),
    "two phases of a name": (
        "jobs",
        "j",
        _job_spec(phases=[{"name": "map", "resources": {"cpu": "1"}}, {"name": "map", "resources": {"cpu": 2}}]),
        "spec.phases: Invalid value: spec.phases must have different names",
    ),
    "a share beside seconds": (
        "jobs",
        "j",
        _job_spec(phases=[{"name": "map", "resources": {"cpu": "1"}, "share": 0.5, "seconds": 60}]),
        "spec.phases: Invalid value: spec.phases must give share for all phases and no seconds, or share for none",
    ),
    "a share of some phases": (
        "jobs",
        "j",
        _job_spec(phases=[{"name": "a", "resources": {"cpu": 1}, "share": 1}, {"name": "b", "resources": {"cpu": 2}}]),
        "spec.phases: Invalid value: spec.phases must give share for all phases and no seconds, or share for none",
    ),
    "a phase that takes no time": (
        "jobs",
        "j",
        _job_spec(phases=[{"name": "map", "resources": {"cpu": "1"}, "seconds": 0}]),
        "spec.phases[0].seconds: Invalid value: 0: spec.phases[0].seconds in body should be greater than 0",
    ),
    "a phase without cpu": (
        "jobs",
        "j",
        _job_spec(phases=[{"name": "map", "resources": {"memory": "1Gi"}}]),
        "spec.phases[0].resources.cpu: Required value",
    ),
    "a gang of more than ever run at once": (
        "jobs",
        "j",
        _job_spec(completions=8, parallelism=4, gang={"minMember": 5}),
        "spec.gang: Invalid value: spec.gang.minMember must be at most spec.parallelism and spec.completions: more "
        "never run at once",
    ),
    "a gang of all of too many": (
        "jobs",
        "j",
        _job_spec(completions=1025, parallelism=1025, gang={}),
        "spec.gang: Invalid value: spec.gang may require at most 1024 pods at once: set spec.gang.minMember",
    ),
    "no template": ("jobs", "j", {}, "spec.template: Required value"),
    "no container": (
        "jobs",
        "j",
        _job_spec(template=_pods(containers=[])),
        "spec.template.spec.containers: Invalid value: 0",
    ),
    "a container without an image": (
        "jobs",
        "j",
        _job_spec(template=_pods(containers=[{"name": "c"}])),
        "spec.template.spec.containers[0].image: Required value",
    ),
    "a class of its own": (
        "jobs",
        "j",
        _job_spec(**{"class": "online"}),
        'spec.class: Unsupported value: "online": supported values: "batch", "gratis"',
    ),
    "a priority too high": (
        "jobs",
        "j",
        _job_spec(priority=1001),
        f"spec.priority: Invalid value: 1001: spec.priority in body {AT_MOST} 1000",
    ),
    "no completions": (
        "jobs",
        "j",
        _job_spec(completions=0),
        f"spec.completions: Invalid value: 0: spec.completions in body {AT_LEAST} 1",
    ),
    "a parallelism in words": (
        "jobs",
        "j",
        _job_spec(parallelism="two"),
        'spec.parallelism: Invalid value: "string": spec.parallelism in body must be of type integer',
    ),
    "an estimate of nothing": (
        "jobs",
        "j",
        _job_spec(requestedSeconds=0),
        "spec.requestedSeconds: Invalid value: 0: spec.requestedSeconds in body should be greater than 0",
    ),
    "a size that is no quantity": ("jobs", "j", _job_spec(inputSize="4 GB"), 'spec.inputSize: Invalid value: "4 GB"'),
    "a negative size": (
        "jobs",
        "j",
        _job_spec(inputSize=-1),
        f"spec.inputSize: Invalid value: -1: spec.inputSize in body {AT_LEAST} 0",
    ),
    "a type that is no label": (
        "jobs",
        "j",
        _job_spec(type="word count"),
        'spec.type: Invalid value: "word count": spec.type in body should match',
    ),
    "another scheduler": (
        "jobs",
        "j",
        _job_spec(template=_pods(schedulerName="default-scheduler")),
        'spec.template.spec.schedulerName: Unsupported value: "default-scheduler": supported values: "cotide"',
    ),
    "an amount that is no quantity": (
        "jobs",
        "j",
        _job_spec(template=_asking(requests={"cpu": 0.5, "memory": "10GiB"})),
        'spec.template.spec.containers[0].resources.requests.memory: Invalid value: "10GiB": '
        "spec.template.spec.containers[0].resources.requests.memory in body should match",
    ),
    "a limit of an init container that is no quantity": (
        "workloads",
        "w",
        {"template": _pods(initContainers=[{"name": "i", "image": "i", "resources": {"limits": {"cpu": "1 core"}}}])},
        'spec.template.spec.initContainers[0].resources.limits.cpu: Invalid value: "1 core": '
        "spec.template.spec.initContainers[0].resources.limits.cpu in body should match",
    ),
    "an amount below none": (
        "jobs",
        "j",
        _job_spec(template=_asking(requests={"cpu": -1})),
        "spec.template.spec.containers[0].resources.requests.cpu: Invalid value: -1: "
        f"spec.template.spec.containers[0].resources.requests.cpu in body {AT_LEAST} 0",
    ),
    "a Job that restarts": (
        "jobs",
        "j",
        _job_spec(template=_pods(restartPolicy="Always")),
        'spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "Never", "OnFailure"',
    ),
    "a service that ends": (
        "workloads",
        "w",
        {"template": _pods(restartPolicy="Never")},
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
    ),
    "no replicas below none": (
        "workloads",
        "w",
        {"template": TEMPLATE, "replicas": -1},
        f"spec.replicas: Invalid value: -1: spec.replicas in body {AT_LEAST} 0",
    ),
    "no limit at all": (
        "workloads",
        "w",
        {"template": TEMPLATE, "qos": {"latencyP95Milliseconds": 0}},
        "spec.qos.latencyP95Milliseconds: Invalid value: 0: spec.qos.latencyP95Milliseconds in body should be greater "
        "than 0",
    ),
    "an operator of its own": (
        "workloads",
        "w",
        {"selector": {"matchExpressions": [{"key": "app", "operator": "Is"}]}},
        'spec.selector.matchExpressions[0].operator: Unsupported value: "Is"',
    ),
    "null where a rule asks": (
        "workloads",
        "w",
        {"template": TEMPLATE, "replicas": None, "selector": {}},
        f"Invalid value: {ONE_WAY}",
    ),
}


def resource(case: str) -> tuple[str, dict[str, Any], str]:
    """Return plural, object and sentence of a case."""
    plural, name, spec, sentence = REFUSED[case]
    kind = {"workloads": "Workload", "jobs": "Job"}[plural]
    body = {"apiVersion": "cotide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return plural, body, sentence


def cases() -> list[str]:
    """Return the names of all cases, as pytest's ids."""
    return list(REFUSED)

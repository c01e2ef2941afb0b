"""Workloads of upstream's scheduler_perf: read from its YAML, with sizes for two cores, and its templates rendered.

Used by `upstream_perf`. Source: ``test/integration/scheduler_perf`` of k8s.io/kubernetes, in Go's module cache.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml
from binaries import NotToBeHad, last_line

FOLDERS: Final = ("affinity", "event_handling", "misc", "topology_spreading", "volumes")
DEFAULT_POD: Final = "../templates/pod-default.yaml"
EXPRESSION: Final = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
Json = dict[str, Any]
Sizes = Mapping[str, int]

_THOUSAND: Final = {"initNodes": 500, "initPods": 500, "measurePods": 1000}
_ZONES: Final = {"initNodes": 500, "initPods": 1000, "measurePods": 1000}
_VOLUMES: Final = {"initNodes": 500, "initPods": 100, "measurePods": 250}
_OTHER_NAMESPACES: Final = {"initNodes": 500, "initNamespaces": 10, "initPodsPerNamespace": 4, "measurePods": 100}
CHOSEN: Final[Mapping[str, Sizes]] = {
    "DefaultTopologySpreading/10Nodes": {"initNodes": 10, "initPods": 0, "measurePods": 60},
    "DefaultTopologySpreading/500Nodes": _ZONES,
    "EventHandlingNodeAdd/50Nodes": {"nodes": 50, "measurePods": 300},
    "EventHandlingNodeUpdate/50Nodes": {"nodes": 50, "measurePods": 300},
    "EventHandlingPodAdd/100Pods": {"measurePods": 100},
    "EventHandlingPodDelete/30Nodes": {"initNodes": 30, "blockerPods": 280, "measurePods": 300},
    "EventHandlingPodUpdate/100Pods": {"blockerPods": 100, "measurePods": 100},
    "MixedSchedulingBasePod/500Nodes": {"initNodes": 500, "initPods": 60, "measurePods": 500},
    "PreemptionAsync/50Nodes": {"initNodes": 50, "initPods": 200, "measurePods": 100},
    "PreemptionBasic/150Nodes": {"initNodes": 150, "initPods": 600, "measurePods": 150},
    "PreferredTopologySpreading/500Nodes": _ZONES,
    "SchedulingBasic/500Nodes": _THOUSAND,
    "SchedulingCSIPVs/500Nodes": _VOLUMES,
    "SchedulingDaemonset/500Nodes": {"initNodes": 500, "measurePods": 400},
    "SchedulingDeletedPodsWithFinalizers/500Nodes": {"initNodes": 500, "deletingPods": 100, "measurePods": 500},
    "SchedulingGatedPodsWithPodAffinityImpactForThroughput/1Node": {"gatedPods": 300, "measurePods": 200},
    "SchedulingInTreePVs/500Nodes": _VOLUMES,
    "SchedulingMigratedInTreePVs/500Nodes": _VOLUMES,
    "SchedulingNodeAffinity/500Nodes": _THOUSAND,
    "SchedulingPodAffinity/500Nodes": _THOUSAND,
    "SchedulingPodAntiAffinity/500Nodes": {"initNodes": 500, "initPods": 100, "measurePods": 400},
    "SchedulingPreferredPodAffinity/500Nodes": _THOUSAND,
    "SchedulingPreferredPodAntiAffinity/500Nodes": _THOUSAND,
    "SchedulingRequiredPodAffinityWithNSSelector/500Nodes": _OTHER_NAMESPACES,
    "SchedulingRequiredPodAntiAffinityWithNSSelector/500Nodes": _OTHER_NAMESPACES,
    "SchedulingSecrets/500Nodes": {"initNodes": 500, "initPods": 100, "measurePods": 500},
    "SchedulingWhileGated/1Node": {"gatedPods": 500, "deletingPods": 300, "measurePods": 300},
    "SchedulingWithExtendedResource/500Nodes": {
        "nodesWithExtendedResource": 400,
        "nodesWithoutExtendedResource": 100,
        "measurePods": 400,
    },
    "SchedulingWithMixedChurn/500Nodes": {"initNodes": 500, "measurePods": 500},
    "SchedulingWithNodeInclusionPolicy/500Nodes": {"normalNodes": 400, "taintNodes": 100, "measurePods": 400},
    "TopologySpreading/500Nodes": _ZONES,
    "Unschedulable/500Nodes": {"initNodes": 500, "initPods": 10, "measurePods": 500},
}
"""Sizes by test and name. Chosen: upstream's own where two cores bind them within seconds, else smaller."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One test of scheduler_perf with its sizes.

    Attributes
    ----------
    name : ``TEST/NAME``.
    operations : of the test's template, in order.
    pod : path of the pods' template where an operation names none.
    folder : from which the paths of templates count.
    """

    name: str
    sizes: Sizes
    operations: Sequence[Json]
    pod: str
    folder: Path

    def count(self, operation: Json) -> int:
        """Return how many objects an operation makes, deletes or updates."""
        named = operation.get("countParam")
        return int(self.sizes[named.removeprefix("$")]) if named else int(operation.get("count", 1))

    def template(self, path: str) -> Path:
        return (self.folder / path).resolve()

    @property
    def without_constraints(self) -> bool:
        """Whether its measured pods belong to a Service and ask for nothing: then a scheduler's own defaults spread."""
        return self.name.startswith("DefaultTopologySpreading")


def sizes_of(text: str) -> tuple[str, Sizes]:
    """Split ``TEST/NAME@size=n,size=n`` into its name and sizes, which add to those of `CHOSEN`.

    Raises
    ------
    ValueError
        For sizes that are not ``name=number``.
    """
    name, _, more = text.partition("@")
    changed = {key: int(number) for key, _, number in (part.partition("=") for part in more.split(",") if part)}
    return name, {**CHOSEN.get(name, {}), **changed}


def workloads(perf: Path, asked: Sequence[str]) -> Iterator[Workload]:
    """Yield workloads by ``TEST/NAME[@size=n,...]``; a name that is not in `CHOSEN` has upstream's sizes.

    Raises
    ------
    ValueError
        For a test or a name that scheduler_perf does not have.
    """
    tests = dict(_tests(perf))
    for text in asked:
        name, sizes = sizes_of(text)
        test = name.partition("/")[0]
        if test not in tests:
            raise ValueError(f"scheduler_perf has no test {test}")
        one = tests[test]
        if not sizes and name not in one.params:
            raise ValueError(f"{test} has no workload {name.partition('/')[2]}, and no sizes are given")
        yield replace(one.workload, name=name, sizes={**one.params.get(name, {}), **sizes})


@dataclass(frozen=True, slots=True)
class _Test:
    workload: Workload
    params: Mapping[str, Sizes]


def _tests(perf: Path) -> Iterator[tuple[str, _Test]]:
    for folder in FOLDERS:
        for test in yaml.safe_load((perf / folder / "performance-config.yaml").read_text(encoding="utf-8")):
            name, pod = test["name"], test.get("defaultPodTemplatePath", DEFAULT_POD)
            params = {f"{name}/{one['name']}": one.get("params") or {} for one in test["workloads"]}
            yield name, _Test(Workload(name, {}, test["workloadTemplate"], pod, perf / folder), params)


def scheduler_perf(go: str, kubernetes: str) -> Path:
    """Return the folder of scheduler_perf in Go's module cache, which the build of the control plane filled; raises
    `NotToBeHad` where the module can't be downloaded either."""
    module = f"k8s.io/kubernetes@v{kubernetes}"
    done = subprocess.run([go, "mod", "download", "-json", module], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotToBeHad(f"{module} can't be downloaded: {last_line(done.stderr or done.stdout)}")
    return Path(json.loads(done.stdout)["Dir"]) / "test" / "integration" / "scheduler_perf"


def render(text: str, index: int, count: int) -> Json:
    """Return the object of a template: Go's ``.Index``, ``.Count``, and ``div`` and ``mod`` of two of them or numbers.

    Raises
    ------
    ValueError
        For an expression that is none of these.
    """
    return _named_as_the_api_names(yaml.safe_load(EXPRESSION.sub(lambda found: _value(found[1], index, count), text)))


def _value(expression: str, index: int, count: int) -> str:
    names = {".Index": index, ".Count": count}
    functions: dict[str, Callable[[int, int], int]] = {"div": lambda a, b: a // b, "mod": lambda a, b: a % b}
    words = expression.split()
    numbers = [names[word] if word in names else int(word) for word in words if word not in functions]
    if len(words) == 1 and len(numbers) == 1:
        return str(numbers[0])
    if len(words) == 3 and len(numbers) == 2 and words[0] in functions:
        return str(functions[words[0]](*numbers))
    raise ValueError(f"no expression of a template: {expression}")


def _named_as_the_api_names(body: Json) -> Json:
    """Some templates write ``NodeTaintsPolicy``; Go's decoder takes that, the server's does not."""
    for constraint in body.get("spec", {}).get("topologySpreadConstraints", ()):
        for key in [key for key in constraint if key[0].isupper()]:
            constraint[key[0].lower() + key[1:]] = constraint.pop(key)
    return body

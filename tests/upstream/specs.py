"""Results of upstream's specs: read from ginkgo's report, kept as JSON, and compared with kube-scheduler's.

Used by `exam`. Only specs that were run and passed count as passed; one that is missing from a report, or that ginkgo
skipped, was not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GROUP: Final = "[sig-scheduling] "
"""How the specs' names begin."""
PASSED: Final = "passed"
NOT_RUN: Final = "not run"
NANOSECONDS: Final = 1e9
MESSAGE_CHARACTERS: Final = 400
"""Chosen: some messages hold a whole pod; ginkgo's report has all of them."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What became of one spec.

    Attributes
    ----------
    state : ``passed``, ``not run``, or what ginkgo calls a failure, such as ``failed`` and ``timedout``.
    message : of a failure, and of a spec that skipped itself.
    """

    state: str
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    """All specs of one run by name.

    Attributes
    ----------
    kubernetes : version, such as ``1.35.4``.
    scheduler : as `exam` names it, such as ``cotide-predictive``.
    """

    kubernetes: str
    scheduler: str
    specs: Mapping[str, Spec]

    @property
    def passed(self) -> int:
        return sum(spec.state == PASSED for spec in self.specs.values())

    def state(self, name: str) -> str:
        """Return the state of a spec, ``not run`` where the run does not know it."""
        spec = self.specs.get(name)
        return NOT_RUN if spec is None else spec.state

    def over(self, earlier: Results) -> Results:
        """Return these results, and for what was not run now those of an earlier run."""
        ran = {name: spec for name, spec in self.specs.items() if spec.state != NOT_RUN}
        return Results(self.kubernetes, self.scheduler, {**earlier.specs, **ran})

    def write(self, file: Path) -> None:
        """Write the results as JSON, sorted by name."""
        specs = {
            name: {"state": spec.state, "seconds": spec.seconds, **({"message": spec.message} if spec.message else {})}
            for name, spec in sorted(self.specs.items())
        }
        document = {"kubernetes": self.kubernetes, "scheduler": self.scheduler, "specs": specs}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> Results:
        """Return what `write` wrote."""
        document = json.loads(file.read_text(encoding="utf-8"))
        specs = {name: Spec(**spec) for name, spec in document["specs"].items()}
        return cls(document["kubernetes"], document["scheduler"], specs)


def of_report(report: list[dict[str, Any]]) -> dict[str, Spec]:
    """Return the specs of sig-scheduling by name, from the document that ``--ginkgo.json-report`` writes."""
    found = {}
    for one in (one for suite in report for one in suite["SpecReports"] or ()):
        name = " ".join([*(one["ContainerHierarchyTexts"] or ()), one["LeafNodeText"]])
        if one["LeafNodeType"] == "It" and name.startswith(GROUP):
            found[name.removeprefix(GROUP)] = _spec(one)
    return found


def _spec(one: dict[str, Any]) -> Spec:
    state = one["State"]
    message = " ".join(str((one.get("Failure") or {}).get("Message", "")).split())[:MESSAGE_CHARACTERS]
    seconds = round(one["RunTime"] / NANOSECONDS, 1)
    return Spec(NOT_RUN if state in ("skipped", "pending", "") else state, seconds, message)


def is_wanted(name: str, focus: str, skip: str) -> bool:
    """Whether a run with this focus and these skips, as ginkgo takes them, runs a spec."""
    full = GROUP + name
    return (not focus or re.search(focus, full) is not None) and (not skip or re.search(skip, full) is None)


def missed(results: Results, baseline: Results, focus: str = "", skip: str = "") -> list[str]:
    """Return the specs that a run should pass and did not: what kube-scheduler passes, as far as it was asked for."""
    return [
        name
        for name, spec in baseline.specs.items()
        if spec.state == PASSED and is_wanted(name, focus, skip) and results.state(name) != PASSED
    ]


def table(results: Results, baseline: Results | None) -> str:
    """Return the specs with their results and kube-scheduler's, and a line that counts them."""
    names = sorted({*results.specs, *(baseline.specs if baseline else ())})
    lines = [f"{results.scheduler:>24} {'seconds':>8} {'kube-scheduler':>15}  spec"]
    for name in names:
        spec = results.specs.get(name, Spec(NOT_RUN))
        other = baseline.state(name) if baseline else ""
        lines.append(f"{spec.state:>24} {spec.seconds:8.1f} {other:>15}  {name}")
    counted = f"{results.scheduler} passed {results.passed} specs of Kubernetes {results.kubernetes}"
    if baseline is not None:
        counted += f", kube-scheduler {baseline.passed}"
    return "\n".join([*lines, counted])

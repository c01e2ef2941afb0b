"""The section ``podTopologySpread`` of the configuration file: the spreading of pods without constraints of their own.

Part of `settings`; read by `settings.engine_config`. Names and rules are those of kube-scheduler's
``PodTopologySpreadArgs`` (k8s.io/kubernetes, pkg/scheduler/apis/config/validation/validation_pluginargs.go), so that
the same lines mean the same in both files.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cotide_core.config import SYSTEM_SPREADS, DefaultSpread
from cotide_core.limits import INT32_MOST, MAX_SPREADS
from cotide_operator.config.section import SECTIONS_DISAGREE, Section

_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX: Final = r"(?=.{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/"
_KEY: Final = re.compile(f"(?:{_PREFIX})?{_NAME}")


class SpreadConstraintSettings(Section):
    """One constraint; its selector is that of each pod's Services and controller."""

    max_skew: int = Field(ge=1, le=INT32_MOST)
    """Most matching pods that a domain may have above the least loaded one."""
    topology_key: str = Field(min_length=1)
    """Label of nodes; each of its values is a domain."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """``ScheduleAnyway`` orders the nodes, ``DoNotSchedule`` refuses them."""

    @field_validator("topology_key")
    @classmethod
    def _names_a_label(cls, value: str) -> str:
        if _KEY.fullmatch(value) is None:
            raise ValueError(f"{value!r} is not the key of a label")
        return value


class PodTopologySpreadSettings(Section):
    """Default constraints of online pods that a Service, ReplicaSet, StatefulSet or ReplicationController selects."""

    defaulting_type: Literal["System", "List"] = "System"
    """``System``: kube-scheduler's own, at most 3 more on a host and 5 more in a zone where that is possible. ``List``:
    those below; an empty list turns default spreading off."""
    default_constraints: tuple[SpreadConstraintSettings, ...] = Field(default=(), max_length=MAX_SPREADS)

    @model_validator(mode="before")
    @classmethod
    def _selects_nothing(cls, data: Any) -> Any:
        constraints = data.get("defaultConstraints") if isinstance(data, dict) else None
        for index, constraint in enumerate(constraints if isinstance(constraints, list) else ()):
            if isinstance(constraint, dict) and constraint.get("labelSelector") is not None:
                sentence = "must be left out: each pod's Services and controller give the selector"
                raise _disagreement(sentence, "defaultConstraints", index, "labelSelector")
        return data

    @model_validator(mode="after")
    def _agrees(self) -> PodTopologySpreadSettings:
        if self.defaulting_type == "System" and self.default_constraints:
            raise _disagreement("must be List with defaultConstraints", "defaultingType")
        seen: set[tuple[str, str]] = set()
        for index, constraint in enumerate(self.default_constraints):
            key = (constraint.topology_key, constraint.when_unsatisfiable)
            if key in seen:
                sentence = f"repeats the constraint of {key[0]} with {key[1]}"
                raise _disagreement(sentence, "defaultConstraints", index)
            seen.add(key)
        return self

    def spreads(self) -> tuple[DefaultSpread, ...]:
        """Return the constraints as the engine takes them."""
        if self.defaulting_type == "System":
            return SYSTEM_SPREADS
        return tuple(
            DefaultSpread(
                constraint.topology_key, constraint.max_skew, required=constraint.when_unsatisfiable == "DoNotSchedule"
            )
            for constraint in self.default_constraints
        )


def _disagreement(sentence: str, *path: int | str) -> PydanticCustomError:
    full = ["podTopologySpread", *path]
    return PydanticCustomError(SECTIONS_DISAGREE, "{sentence}", {"path": full, "sentence": sentence})

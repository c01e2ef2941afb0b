"""Our custom resources as models: `Workload` and `Job` of cotide.dev/v1alpha1.

The committed CRDs are generated from these models (`crd_generation`), and the controllers read specs through them
(`read_job`, `read_workload`). So the API server and the operator can't accept different objects. Invariant: each `Rule`
is written twice on purpose, in CEL for the API server and in Python for objects from older definitions, with the same
sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import CoreSchema

from cotide_core.errors import InputError
from cotide_core.limits import (
    INDEXES_CHARACTERS,
    MAX_EXACT_INT,
    MAX_GANG,
    MAX_INDEXES,
    MAX_LATENCY_MILLISECONDS,
    MAX_SECONDS,
)
from cotide_core.phases.profile import MAX_PHASES
from cotide_core.units import CPU, MEMORY, resource_amount
from cotide_operator.apis.names import GROUP, VERSION
from cotide_operator.apis.template_resources import check_quantities, of_a_container, of_a_pod

API_VERSION: Final = f"{GROUP}/{VERSION}"

WORKLOAD_LABEL: Final = "cotide.dev/workload"
INDEX_LABEL: Final = "cotide.dev/index"
TYPE_ANNOTATION: Final = "cotide.dev/type"
INPUT_SIZE_ANNOTATION: Final = "cotide.dev/input-size"
REQUESTED_SECONDS_ANNOTATION: Final = "cotide.dev/requested-seconds"
JOB_PRIORITY_ANNOTATION: Final = "cotide.dev/job-priority"
RETRY_ANNOTATION: Final = "cotide.dev/retry"
TEMPLATE_ANNOTATION: Final = "cotide.dev/template"

NAME_LIMIT: Final = 63
"""A label value's limit: the name becomes one on each child pod."""
QUANTITY_PATTERN: Final = (
    r"^\+?([0-9]{1,15}(\.[0-9]{0,9})?[num]?|\.[0-9]{1,9}[num]?|[0-9]{1,12}(\.[0-9]{0,9})?(k|Ki)"
    r"|[0-9]{1,9}(\.[0-9]{0,9})?(M|Mi)|[0-9]{1,6}(\.[0-9]{0,9})?(G|Gi)|[0-9]{1,3}(\.[0-9]{0,9})?(T|Ti)"
    r"|[0-8](\.[0-9]{0,9})?P|9P|[0-7](\.[0-9]{0,9})?Pi|8Pi|[0-9]{1,3}(\.[0-9]{0,9})?[eE](\+?([0-9]|1[0-2])|-[0-9]{1,2}))$"
)
"""The grammar of `units.parse_quantity` without a minus sign, up to the limit of exact amounts: an accepted amount is
never beyond `limits.MAX_EXACT_INT` (8 Pi). A schema can't compare amounts; above a thousand of a unit the next unit is
used."""
COMPLETIONS_LIMIT: Final = MAX_INDEXES
MAX_SHARE: Final = 1000.0
"""Largest share of a phase. Chosen: shares are parts of 1, of 100 or of 1,000."""

_INT_OR_STRING: Final[JsonDict] = {
    "x-kubernetes-int-or-string": True,
    "pattern": QUANTITY_PATTERN,
    "minimum": 0,
    "maximum": MAX_EXACT_INT,
}
_NOT_NULL: Final[JsonDict] = {"x-not-null": True}
"""For fields with a presence check in a CEL rule: null would count as present."""


class Schema(BaseModel):
    """Base of every part of a resource: camelCase on the wire; unknown fields are ignored, as the API server prunes
    them."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")
    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add the rules to their part of the schema."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.as_validation() for rule in cls.rules]
        return schema


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition between fields; not repeated in the structural schema, since its refusals would hide the sentence."""

    cel: str
    message: str
    field: str
    """Path of the faulty field below the schema with the rule; empty if there is none."""
    holds: Callable[[Any], bool]

    def as_validation(self) -> dict[str, str]:
        """Return the rule as one of ``x-kubernetes-validations``."""
        validation = {"rule": self.cel, "message": self.message, "fieldPath": self.field}
        return {key: value for key, value in validation.items() if value}


class TemplateMetadata(Schema):
    """Metadata that every child pod gets."""

    labels: dict[str, str] = Field(default_factory=dict, description="Labels of the child pods.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations of the child pods.")


class ContainerTemplate(Schema):
    """A container of a pod template; the API server checks the rest when the pod is created."""

    model_config = ConfigDict(extra="allow", json_schema_extra=of_a_container)
    name: str = Field(min_length=1, max_length=NAME_LIMIT, description="Name of the container.")
    image: str = Field(min_length=1, description="Image of the container.")


class PodTemplateSpec(Schema):
    """A pod spec: all fields of the core API are kept, a few are checked here."""

    model_config = ConfigDict(extra="allow", json_schema_extra=of_a_pod)
    containers: list[ContainerTemplate] = Field(min_length=1, max_length=64, description="At least one container.")
    scheduler_name: Literal["cotide"] = Field(
        default="cotide", description="Always cotide here; the pods get the first of the operator's schedulerNames."
    )


class JobPodSpec(PodTemplateSpec):
    """Pod spec of a Job's pods."""

    restart_policy: Literal["Never", "OnFailure"] = Field(
        default="Never", description="Never or OnFailure: finite work does not restart when it is done."
    )


class WorkloadPodSpec(PodTemplateSpec):
    """Pod spec of a Workload's pods."""

    restart_policy: Literal["Always"] = Field(default="Always", description="Always: a service does not end.")


class JobTemplate(Schema):
    """Template of a Job's pods."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata, description="Labels and annotations.")
    spec: JobPodSpec = Field(description="A pod spec as in the core API.")


class WorkloadTemplate(Schema):
    """Template of a Workload's pods."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata, description="Labels and annotations.")
    spec: WorkloadPodSpec = Field(description="A pod spec as in the core API.")


class PhaseResources(Schema):
    """The needs of a phase."""

    cpu: int | str = Field(json_schema_extra=_INT_OR_STRING, description="Cores: 250m.")
    memory: int | str = Field(
        default=0,
        json_schema_extra=_INT_OR_STRING,
        description="Bytes: 2Gi; the largest of all phases if not given. Given back once no later phase needs it.",
    )


class JobPhase(Schema):
    """A part of each pod's work with a steady need."""

    name: str = Field(min_length=1, max_length=NAME_LIMIT, description="Value of cotide.dev/phase during this phase.")
    resources: PhaseResources = Field(description="Needs of its first container during this phase.")
    seconds: float | None = Field(
        default=None,
        gt=0,
        le=MAX_SECONDS,
        json_schema_extra=_NOT_NULL,
        description="Length with these resources; work without a phase signal then continues with the next phase.",
    )
    share: float | None = Field(
        default=None,
        gt=0,
        le=MAX_SHARE,
        json_schema_extra=_NOT_NULL,
        description="The same as a part of the pod's run time, in proportion to the shares of the other phases.",
    )

    @property
    def millicores(self) -> int:
        """Cpu in millicores."""
        return resource_amount(CPU, self.resources.cpu)

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        return resource_amount(MEMORY, self.resources.memory)


class GangSpec(Schema):
    """How many pods of a Job start together or not at all."""

    min_member: int | None = Field(
        default=None,
        ge=1,
        le=MAX_GANG,
        json_schema_extra=_NOT_NULL,
        description="Pods that start at once, or have succeeded; all of parallelism if not given.",
    )
    timeout_seconds: float = Field(
        default=300.0,
        ge=1,
        le=MAX_SECONDS,
        description="Longest time that fewer pods hold a node while others wait; then these are evicted.",
    )


class JobSpec(Schema):
    """Spec of a Job: finite work of class batch or gratis."""

    class_: Literal["batch", "gratis"] = Field(
        default="batch",
        alias="class",
        description="batch must finish and is evicted only on overload; gratis is best effort and goes first.",
    )
    type: str = Field(
        default="",
        max_length=NAME_LIMIT,
        pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
        description="The predictors learn by it, for example wordcount; unknown types count as the worst known one.",
    )
    input_size: int | str = Field(
        default=0, json_schema_extra=_INT_OR_STRING, description="Size of the input as a quantity of bytes: 4Gi."
    )
    priority: int = Field(default=100, ge=0, le=1000, description="Sub-queue, 0 to 1000; higher goes first.")
    requested_seconds: float | None = Field(
        default=None,
        gt=0,
        le=MAX_SECONDS,
        description="The user's own estimate of the run time of one pod, in seconds.",
    )
    completions: int = Field(default=1, ge=1, le=COMPLETIONS_LIMIT, description="Pods that must succeed.")
    parallelism: int = Field(default=1, ge=1, le=COMPLETIONS_LIMIT, description="Pods at the same time, at most.")
    backoff_limit: int = Field(
        default=6, ge=0, le=1000, description="Failures before the Job fails; evictions are not counted."
    )
    template: JobTemplate = Field(description="The pods to run.")
    phases: list[JobPhase] = Field(
        default_factory=list,
        max_length=MAX_PHASES,
        description="Phases of each pod, in order; its first container is resized in place to what its phase needs.",
    )
    gang: GangSpec | None = Field(
        default=None, json_schema_extra=_NOT_NULL, description="Pods start together or not at all; none: one by one."
    )
    suspend: bool = Field(
        default=False, description="true: no pods are created, and existing ones are deleted; counts as no failure."
    )
    rules = (
        Rule(
            "!has(self.gang) || !has(self.gang.minMember) || (self.gang.minMember <= self.parallelism"
            " && self.gang.minMember <= self.completions)",
            "spec.gang.minMember must be at most spec.parallelism and spec.completions: more never run at once",
            ".gang",
            lambda spec: spec.gang is None or (spec.gang.min_member or 1) <= min(spec.parallelism, spec.completions),
        ),
        Rule(
            f"!has(self.gang) || has(self.gang.minMember) || self.parallelism <= {MAX_GANG}"
            f" || self.completions <= {MAX_GANG}",
            f"spec.gang may require at most {MAX_GANG} pods at once: set spec.gang.minMember",
            ".gang",
            lambda spec: spec.gang is None or spec.gang_size <= MAX_GANG,
        ),
        Rule(
            "!has(self.phases) || self.phases.all(one, self.phases.exists_one(other, other.name == one.name))",
            "spec.phases must have different names",
            ".phases",
            lambda spec: len({phase.name for phase in spec.phases}) == len(spec.phases),
        ),
        Rule(
            "!has(self.phases) || !self.phases.exists(one, has(one.share))"
            " || self.phases.all(one, has(one.share) && !has(one.seconds))",
            "spec.phases must give share for all phases and no seconds, or share for none",
            ".phases",
            lambda spec: (
                all(phase.share is None for phase in spec.phases)
                or all(phase.share is not None and phase.seconds is None for phase in spec.phases)
            ),
        ),
    )

    @property
    def gang_size(self) -> int:
        """Pods that must hold a node or have succeeded before any runs; 0 without a gang."""
        if self.gang is None:
            return 0
        return self.gang.min_member or min(self.parallelism, self.completions)

    @property
    def input_bytes(self) -> int:
        """Input size in bytes."""
        return resource_amount("memory", self.input_size)


class MatchExpression(Schema):
    """One requirement of a label selector."""

    key: str = Field(min_length=1, max_length=317, description="The label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="In, NotIn, Exists, DoesNotExist.")
    values: list[str] = Field(default_factory=list, max_length=64, description="For In and NotIn.")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels meets the requirement (NotIn holds without the label)."""
        if self.operator == "In":
            return labels.get(self.key) in self.values
        if self.operator == "NotIn":
            return labels.get(self.key) not in self.values
        return (self.key in labels) == (self.operator == "Exists")


class LabelSelector(Schema):
    """Labels of the pods to adopt; all requirements must hold."""

    match_labels: dict[str, str] = Field(
        default_factory=dict, json_schema_extra={"maxProperties": 64}, description="Labels that must be equal."
    )
    match_expressions: list[MatchExpression] = Field(
        default_factory=list, max_length=64, description="Further requirements."
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is selected; an empty selector selects nothing."""
        if not self.match_labels and not self.match_expressions:
            return False
        equal = all(labels.get(key) == value for key, value in self.match_labels.items())
        return equal and all(expression.matches(labels) for expression in self.match_expressions)


class Qos(Schema):
    """The promise of a service."""

    latency_p95_milliseconds: float = Field(
        default=10.0,
        gt=0,
        le=MAX_LATENCY_MILLISECONDS,
        alias="latencyP95Milliseconds",
        description="Limit of the 95th percentile of the response time, in milliseconds.",
    )
    rps_query: str | None = Field(
        default=None,
        max_length=4096,
        description="PromQL for requests per second, one series a pod, where own queries are allowed.",
    )
    latency_query: str | None = Field(
        default=None,
        max_length=4096,
        description="PromQL for the p95 latency in milliseconds, by pod, where own queries are allowed.",
    )


class WorkloadSpec(Schema):
    """Spec of a Workload: an online service that keeps its latency."""

    selector: LabelSelector | None = Field(
        default=None,
        json_schema_extra=_NOT_NULL,
        description="Adopt pods of a Deployment or StatefulSet of this namespace.",
    )
    template: WorkloadTemplate | None = Field(
        default=None, json_schema_extra=_NOT_NULL, description="Let Cotide run the pods itself."
    )
    replicas: int | None = Field(
        default=None, ge=0, le=10_000, json_schema_extra=_NOT_NULL, description="Pods of the template; 1 if not given."
    )
    qos: Qos = Field(default_factory=Qos, json_schema_extra={"default": {}}, description="What the service promises.")
    exclusive: bool = Field(
        default=False, description="true: only nodes without another online service; false: such nodes are preferred."
    )
    rules = (
        Rule(
            "has(self.selector) != has(self.template)",
            "give either spec.selector, to adopt pods, or spec.template, to let Cotide run them, and not both",
            ".selector",
            lambda spec: (spec.selector is None) != (spec.template is None),
        ),
        Rule(
            "!has(self.replicas) || has(self.template)",
            "spec.replicas needs spec.template: adopted pods are scaled by their Deployment or StatefulSet",
            ".replicas",
            lambda spec: spec.replicas is None or spec.template is not None,
        ),
        Rule(
            "!has(self.selector) || (has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0)"
            " || (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",
            "spec.selector must name at least one label: an empty one would mean every pod of the namespace",
            ".selector",
            lambda spec: (
                spec.selector is None or bool(spec.selector.match_labels) or bool(spec.selector.match_expressions)
            ),
        ),
    )


class StatusCondition(Schema):
    """A condition as in the core API."""

    type: str = Field(description="Name of the condition.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: str = Field(default="", description="One word for programs.")
    message: str = Field(default="", description="One sentence for people.")
    observed_generation: int | None = Field(default=None, description="Generation of the spec that it describes.")
    last_transition_time: str | None = Field(
        default=None, json_schema_extra={"format": "date-time"}, description="When the status last changed."
    )


class PredictedSeconds(Schema):
    """Predicted run time of the slowest pod that is not done."""

    p50: float | None = Field(default=None, description="As likely above as below, in seconds.")
    p90: float | None = Field(default=None, description="Nine times in ten it is shorter, in seconds.")


_LAST_RETRY: Final = Field(
    default=None,
    json_schema_extra={"format": "date-time"},
    description="When the last retry of a change of the spec was, after a fault of the API server.",
)


class JobStatus(Schema):
    """Status of a Job."""

    phase: Literal["Queued", "Running", "Succeeded", "Failed"] | None = Field(default=None, description="In one word.")
    queue_position: int | None = Field(default=None, description="Of its foremost waiting pod; 1 is tried next.")
    attempts: int = Field(default=0, description="Placement attempts of its most tried pod; never goes back.")
    demotions: int = Field(default=0, description="Priority levels that its pods fell at most; never goes back.")
    evictions: int = Field(default=0, description="Pods evicted, refused by a node or deleted; never goes back.")
    failures: int = Field(default=0, description="Pods that failed of themselves; counted against backoffLimit.")
    active: int = Field(default=0, description="Pods on a node now.")
    succeeded: int = Field(default=0, description="Pods that succeeded.")
    completed_indexes: str = Field(
        default="", max_length=INDEXES_CHARACTERS, description="Indexes that succeeded, as 0-3,7."
    )
    retried_indexes: str = Field(
        default="",
        max_length=INDEXES_CHARACTERS,
        description="Indexes that needed further pods and how many, as 2:1,5:3.",
    )
    predicted_seconds: PredictedSeconds | None = Field(default=None, description="Predicted run time of one pod.")
    predicted_start: str | None = Field(
        default=None, json_schema_extra={"format": "date-time"}, description="When the next pod should start."
    )
    predicted_finish: str | None = Field(
        default=None, json_schema_extra={"format": "date-time"}, description="When the Job should be done (p50)."
    )
    nodes: list[str] = Field(default_factory=list, description="Nodes that its pods run or ran on, 64 at most.")
    start_time: str | None = Field(
        default=None, json_schema_extra={"format": "date-time"}, description="When its first pod was on a node."
    )
    completion_time: str | None = Field(
        default=None, json_schema_extra={"format": "date-time"}, description="When it was done."
    )
    observed_generation: int | None = Field(
        default=None, description="Generation of the spec that this status describes."
    )
    last_retry_time: str | None = _LAST_RETRY
    conditions: list[StatusCondition] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Scheduled, Complete and Failed.",
    )


class WorkloadStatus(Schema):
    """Status of a Workload."""

    ready: str | None = Field(default=None, description="Ready pods of wanted ones, as 2/3.")
    ready_replicas: int = Field(default=0, description="Ready pods.")
    replicas: int = Field(default=0, description="Pods that exist.")
    nodes: list[str] = Field(default_factory=list, description="Nodes that its pods run on, 64 at most.")
    rps: float | None = Field(default=None, description="Requests per second, all pods together.")
    latency_p95_milliseconds: float | None = Field(
        default=None, alias="latencyP95Milliseconds", description="Worst p95 latency of its pods, in milliseconds."
    )
    decided_by: Literal["Model", "Heuristic"] | None = Field(
        default=None,
        description="Basis of decisions on batch work next to it; Model once its forecasts are trusted.",
    )
    violations: int = Field(
        default=0, description="Slots (slotSeconds) in which a pod broke the limit; never goes back."
    )
    observed_generation: int | None = Field(
        default=None, description="Generation of the spec that this status describes."
    )
    last_retry_time: str | None = _LAST_RETRY
    conditions: list[StatusCondition] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Ready, Scheduled, and Misconfigured once a query gave nothing.",
    )


class Job(Schema):
    """Finite work that Cotide fits into the slack of the cluster."""

    spec: JobSpec = Field(description="The desired state.")
    status: JobStatus | None = Field(default=None, json_schema_extra=_NOT_NULL, description="The observed state.")


class Workload(Schema):
    """An online service; Cotide keeps its latency within the limit."""

    spec: WorkloadSpec = Field(description="The desired state.")
    status: WorkloadStatus | None = Field(default=None, json_schema_extra=_NOT_NULL, description="The observed state.")


NAME_RULE: Final = Rule(
    f"size(self.metadata.name) <= {NAME_LIMIT}",
    f"metadata.name must have at most {NAME_LIMIT} characters: it becomes a label of the pods",
    "",
    lambda name: len(name) <= NAME_LIMIT,
)

_Spec = TypeVar("_Spec", JobSpec, WorkloadSpec)


def read_job(body: Mapping[str, Any]) -> JobSpec:
    """Return the spec of a Job object; raises `InputError` with the field's path if it is invalid."""
    return _read(JobSpec, body)


def read_workload(body: Mapping[str, Any]) -> WorkloadSpec:
    """Return the spec of a Workload object; raises `InputError` with the field's path if it is invalid."""
    return _read(WorkloadSpec, body)


def _read(model: type[_Spec], body: Mapping[str, Any]) -> _Spec:
    name = (body.get("metadata") or {}).get("name") or ""
    if not NAME_RULE.holds(name):
        raise InputError(NAME_RULE.message)
    try:
        spec = model.model_validate(body.get("spec") or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise InputError(first["msg"][:1].lower() + first["msg"][1:], field=f"spec{path}") from error
    if isinstance(spec, JobSpec):
        _check_quantity(spec)
    if spec.template is not None:
        _check_template(body["spec"]["template"])
    for rule in model.rules:
        if not rule.holds(spec):
            raise InputError(rule.message)
    return spec


def _check_template(template: Mapping[str, Any]) -> None:
    """Refuse invalid quantities, like the schema's pattern."""
    try:
        check_quantities(template["spec"])
    except InputError as error:
        raise InputError(error.message, field=f"spec.template.spec.{error.field}") from error


def _check_quantity(spec: JobSpec) -> None:
    """Refuse an invalid quantity, like the schema's pattern."""
    try:
        negative = spec.input_bytes < 0
    except InputError as error:
        raise InputError(str(error), field="spec.inputSize") from error
    if negative:
        raise InputError("must not be negative", field="spec.inputSize")

"""The load of a bound pod on its machine, read from its labels and annotations.

Called by `residents`. A pod is finite when its class is batch or gratis, when ``sim.cotide.dev/lone-seconds`` gives its
run time, or when its ``restartPolicy`` is other than Always; any other runs until it is deleted. Pure.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from cotide_core.classes import CLASS_LABEL, WorkloadClass
from cotide_core.errors import InputError
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY, resource_amount
from cotide_kube.objects import PodObject
from cotide_sim.cluster.machine import DEFAULT_LONE_SECONDS, PodLoad
from cotide_sim.interference.model import Interference
from cotide_sim.kubelets.admission import Amounts

LONE_SECONDS: Final = "sim.cotide.dev/lone-seconds"
RATES: Final = "sim.cotide.dev/rates"
RATES_STEP: Final = "sim.cotide.dev/rates-step-seconds"
RATES_ORIGIN: Final = "sim.cotide.dev/rates-origin-seconds"
USED_MILLICORES: Final = "sim.cotide.dev/used-millicores"
LATENCY_FACTOR: Final = "sim.cotide.dev/latency-factor"
RATE_FACTOR: Final = "sim.cotide.dev/rate-factor"
EXIT_CODE: Final = "sim.cotide.dev/exit-code"
TYPE: Final = "cotide.dev/type"
INPUT_SIZE: Final = "cotide.dev/input-size"


def pod_load(pod: PodObject, requests: Amounts, interference: Interference) -> PodLoad:
    """Return the load of a pod.

    Raises
    ------
    InputError
        When an annotation cannot be read; names it.
    """
    notes = pod.metadata.annotations
    lone = _number(notes, LONE_SECONDS, minimum=0.0)
    job_type = notes.get(TYPE, "")
    try:
        input_bytes = resource_amount("bytes", notes[INPUT_SIZE]) if INPUT_SIZE in notes else 0
    except InputError as error:
        raise InputError(str(error), field=_field(INPUT_SIZE)) from error
    cls = _class(pod, has_end=lone is not None)
    if cls is not WorkloadClass.ONLINE and lone is None:
        known = float(interference.isolated_seconds((job_type,), np.asarray([float(input_bytes)]))[0])
        lone = known if math.isfinite(known) else DEFAULT_LONE_SECONDS
    step = _number(notes, RATES_STEP, minimum=1e-3)
    exit_code = _number(notes, EXIT_CODE, minimum=0.0)
    latency_factor, rate_factor = (_number(notes, name, minimum=1e-6) for name in (LATENCY_FACTOR, RATE_FACTOR))
    return PodLoad(
        key=f"{pod.metadata.namespace}/{pod.metadata.name}",
        cls=cls,
        millicores=requests.get(CPU, 0) + requests.get(RECLAIMED_CPU, 0),
        memory_bytes=requests.get(MEMORY, 0) + requests.get(RECLAIMED_MEMORY, 0),
        type=job_type,
        input_bytes=input_bytes,
        isolated_seconds=lone,
        rates=_course(notes, RATES, "request rates such as 5000,7000"),
        used_millicores=_course(notes, USED_MILLICORES, "millicores such as 800,1200"),
        container=pod.spec.containers[0].name if pod.spec.containers else "main",
        rates_step_seconds=60.0 if step is None else step,
        rates_origin_seconds=_number(notes, RATES_ORIGIN),
        exit_code=0 if exit_code is None else int(exit_code),
        latency_factor=1.0 if latency_factor is None else latency_factor,
        rate_factor=1.0 if rate_factor is None else rate_factor,
    )


def _class(pod: PodObject, *, has_end: bool) -> WorkloadClass:
    label = pod.metadata.labels.get(CLASS_LABEL)
    named = WorkloadClass(label) if label in set(WorkloadClass) else WorkloadClass.ONLINE
    if named is WorkloadClass.ONLINE and (has_end or pod.spec.restart_policy != "Always"):
        return WorkloadClass.BATCH
    return named


def _number(notes: dict[str, str], name: str, minimum: float = -math.inf) -> float | None:
    text = notes.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= minimum):
        bound = f" of at least {minimum:g}" if minimum > -math.inf else ""
        raise InputError(f"{text!r} is not a number{bound}", field=_field(name))
    return value


def _course(notes: dict[str, str], name: str, what: str) -> tuple[float, ...]:
    text = notes.get(name, "")
    try:
        rates = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        rates = (math.nan,)
    if not all(math.isfinite(rate) and rate >= 0.0 for rate in rates):
        raise InputError(f"{text[:40]!r} is not a list of {what}", field=_field(name))
    return rates


def _field(name: str) -> str:
    return f"metadata.annotations[{name}]"

"""Preparation of the demo: the plan, the interference model and the two trained predictors.

Called by `demo_command`, once for all policies. With real data the interference model is fitted to the memcached
measurements and the predictors learn from them too; without it, documented generators replace them. Either way the
predictors learn from a profiling campaign (random mixes tried on a fake node), never from the physics itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.kernels.compiled import when_compiling
from cotide_core.policies import build_policy
from cotide_core.units import counted
from cotide_operator.observability.ledger_file import write_files
from cotide_predictors.completion.completion_model import train_completion
from cotide_predictors.qos.qos_model import train_qos
from cotide_predictors.serialisation import to_files
from cotide_sim.cluster import profiling
from cotide_sim.demo.options import DemoOptions
from cotide_sim.interference.model import GeneratedInterference, Interference, MeasuredInterference
from cotide_sim.workloads import sizing
from cotide_sim.workloads.plan import Plan
from cotide_sim.workloads.scenarios import plan_of

COLOCATION: Final = "colocation"
"""The directory of the memcached measurements inside the data directory."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The parts that all policies share: arrivals, physics and models."""

    plan: Plan
    interference_file: Path
    models_directory: Path


def prepare(options: DemoOptions, workspace: Path, say: Callable[[str], None]) -> Prepared:
    """Make the plan, fit the interference model and train the predictors.

    Raises
    ------
    InputError
        When a trace or a table is missing or broken, with its file and line.
    """
    interference: Interference
    if options.data is None:
        interference = GeneratedInterference()
        samples = profiling.profile(interference, options.seed)
        say("arrivals and interference come from generators (name real traces with --data DIR)")
    else:
        say(f"reading traces and measurements in {options.data}")
        measurements = options.data / COLOCATION
        interference = MeasuredInterference.from_directory(measurements)
        samples = profiling.with_measured_rows(profiling.profile(interference, options.seed), measurements)
    plan = plan_of(
        options.scenario,
        options.seed,
        options.nodes,
        options.simulated_seconds,
        data=options.data,
        interference=interference if options.data is None else None,
    )
    interference_file = workspace / "interference.json"
    interference_file.write_text(interference.to_json())
    qos, completion = samples
    models = workspace / "models"
    limits = sizing.LIMITS_MILLISECONDS
    when_compiling(lambda: say("compiling kernels, once for this installation (about a minute)"))
    for policy in options.policies:  # the operators then find their machine code on disk
        build_policy(SchedulerConfig(policy=policy))
    write_files(models / "qos", to_files(train_qos(qos, limits_milliseconds=limits, random_state=options.seed)))
    write_files(models / "completion", to_files(train_completion(completion, random_state=options.seed)))
    pods = sum(service.replicas for service in plan.services)
    say(
        f"predictors are trained on {counted(len(qos.mixes), 'mix', 'mixes')} and "
        f"{counted(len(completion.seconds), 'run')}; scenario {options.scenario}: "
        f"{counted(len(plan.services), 'service')} with {counted(pods, 'pod')} and {counted(len(plan.jobs), 'job')} "
        "will arrive"
    )
    return Prepared(plan, interference_file, models)

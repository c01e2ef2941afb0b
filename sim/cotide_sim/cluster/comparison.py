"""A comparison of policies in virtual time, with trained models: the demo's result, for many seeds in a minute.

Run as ``python -m cotide_sim.cluster.comparison --seeds 1,2,3 [--scenario slack] [--data DIR]``; data on stdout,
progress on stderr. Position in the flow: around `world`. Invariant: for one seed every policy meets the same arrivals,
machines and models.

The models are trained as in the demo: on a profiling campaign, and with ``--data`` on the measured rows too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from cotide_core.config import RUN_TIME_POLICIES, SchedulerConfig, slack_knobs
from cotide_core.events import ModelsChanged
from cotide_core.forecasts import CompletionForecaster, QosForecaster
from cotide_core.policies.catalogue import by_slack
from cotide_core.units import counted
from cotide_predictors.completion.completion_model import train_completion
from cotide_predictors.qos.qos_model import train_qos
from cotide_sim.cluster import profiling
from cotide_sim.cluster.scorecard import Summary
from cotide_sim.cluster.slot_forecasts import AHEAD_SLOTS, PeakRule, Quantile
from cotide_sim.cluster.world import World
from cotide_sim.interference.model import GeneratedInterference, Interference, MeasuredInterference
from cotide_sim.workloads import sizing
from cotide_sim.workloads.plan import Plan
from cotide_sim.workloads.scenarios import SCENARIOS, SLOT_SECONDS, Scenario, plan_of, watchful

POLICIES: Final = ("fifo", "random", "fifo-guarded", "random-guarded", "qpsm", "predictive")
"""The default policies of the comparison."""
VIOLATIONS_SHARE: Final = 0.25
"""Violations of `qpsm` and `predictive` may be at most this share of a plain policy's: the objective of the demo."""


@dataclass(frozen=True, slots=True)
class TrainedModels:
    """A catalogue of just two models, under any id."""

    qos_model: QosForecaster
    completion_model: CompletionForecaster

    def qos(self, model_id: str) -> QosForecaster:
        """Return the QoS model."""
        del model_id
        return self.qos_model

    def completion(self, model_id: str) -> CompletionForecaster:
        """Return the completion model."""
        del model_id
        return self.completion_model

    @property
    def event(self) -> ModelsChanged:
        """The event that announces them to an engine."""
        return ModelsChanged(self.qos_model.model_id, self.completion_model.model_id)


def prepare(data: Path | None, seed: int) -> tuple[Interference, TrainedModels]:
    """Return the physics and the models of a seed: measured where there is data, else generated."""
    if data is None:
        interference: Interference = GeneratedInterference()
        samples = profiling.profile(interference, seed)
    else:
        interference = MeasuredInterference.from_directory(data / "colocation")
        samples = profiling.with_measured_rows(profiling.profile(interference, seed), data / "colocation")
    qos = train_qos(samples[0], limits_milliseconds=sizing.LIMITS_MILLISECONDS, random_state=seed)
    return interference, TrainedModels(qos, train_completion(samples[1], random_state=seed))


def compare(
    plan: Plan,
    interference: Interference,
    models: TrainedModels,
    config: SchedulerConfig,
    *,
    nodes: int,
    policies: Sequence[str] = POLICIES,
    quantile: Quantile = "p90",
) -> dict[str, Summary]:
    """Play one plan by each policy and return the figures by policy."""
    return {
        policy: World(
            plan,
            interference,
            config_of(policy, config),
            models,
            models=models.event,
            nodes=nodes,
            slot_seconds=SLOT_SECONDS,
            peak=PeakRule(quantile, ahead_slots=AHEAD_SLOTS if policy in RUN_TIME_POLICIES else ()),
        )
        .run()
        .summary
        for policy in policies
    }


def config_of(policy: str, config: SchedulerConfig) -> SchedulerConfig:
    """Return the configuration with another policy, and with knobs for these scenarios where the policy plans by
    slack.
    """
    knobs = watchful(config.hierarchical or slack_knobs(policy)) if by_slack(policy) else None
    return replace(config, policy=policy, hierarchical=knobs)


def missed(figures: dict[str, Summary], scenario: Scenario) -> list[str]:
    """Return the missed objectives of the demo as texts; empty for none.

    In the scenario ``latency`` `qpsm`, and in both `predictive`: time over the limit at most a quarter of that of each
    plain policy. In ``latency`` `qpsm`: less waiting than under either guarded policy. Of `predictive` and
    `hierarchical`: fewer overload slots than `fifo`, and no online pod evicted. Of every policy: each service runs. A
    policy that did not run is not judged.
    """
    guarding = ("predictive", "qpsm") if scenario == "latency" else ("predictive",)
    faults = [
        f"violations of {ours} above a quarter of {name}"
        for ours in guarding
        for name in ("fifo", "random")
        if {ours, name} <= figures.keys()
        and figures[ours]["qos_violation_ratio"] > VIOLATIONS_SHARE * figures[name]["qos_violation_ratio"]
    ] + [
        f"waiting of qpsm not below {name}"
        for name in ("fifo-guarded", "random-guarded")
        if scenario == "latency"
        and {"qpsm", name} <= figures.keys()
        and figures["qpsm"]["waiting_seconds_total"] >= figures[name]["waiting_seconds_total"]
    ]
    for name, figure in figures.items():
        if never := len(figure["services_never_ran"]):
            faults.append(f"{counted(never, 'service')} never ran under {name}")
    for ours in ("predictive", "hierarchical"):
        if ours not in figures:
            continue
        if figures[ours]["online_evictions"]:
            faults.append(f"an online pod was evicted by {ours}")
        # Where the other one overloads no node, no improvement is possible.
        if "fifo" in figures and figures[ours]["overload_slots"] >= max(1, figures["fifo"]["overload_slots"]):
            faults.append(f"overload slots of {ours} not below fifo")
    return faults


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Directory of real traces; generators without it.")
@click.option("--seeds", default="1,2,3,4,5", show_default=True, help="Seeds, separated by commas.")
@click.option("--seconds", default=900.0, show_default=True, help="Simulated seconds of each run.")
@click.option("--nodes", default=40, show_default=True, help="8-core nodes.")
@click.option("--threshold", type=float, help="Accepted probability of a violation (default: the engine's).")
@click.option("--scenario", type=click.Choice(SCENARIOS), default="latency", show_default=True, help="Which services.")
@click.option("--policies", default=",".join(POLICIES), show_default=True, help="Which to play.")
@click.option("--quantile", type=click.Choice(["p50", "p90", "p99"]), default="p90", show_default=True)
def command(
    data: Path | None,
    seeds: str,
    seconds: float,
    nodes: int,
    threshold: float | None,
    scenario: Scenario,
    policies: str,
    quantile: Quantile,
) -> None:
    """Print waiting, violations and overloads of each policy for several seeds.

    ``--quantile`` is the forecast peak that the policies hierarchical and predictive plan with.
    """
    click.echo(
        "| seed | policy | waiting s | mean s | violations | cpu | jobs | pods | overloads | evicted (online) |"
        " absent |"
    )
    click.echo("|---|---|---|---|---|---|---|---|---|---|---|")
    misses = 0
    for seed in (int(part) for part in seeds.split(",")):
        interference, models = prepare(data, seed)
        plan = plan_of(scenario, seed, nodes, seconds, data=data)
        config = SchedulerConfig(seed=seed, preempts_by_priority=True)  # as the operator sets it
        if threshold is not None:
            config = replace(config, qos_risk_threshold=threshold)
        figures = compare(
            plan, interference, models, config, nodes=nodes, policies=policies.split(","), quantile=quantile
        )  # fmt: skip
        for policy, summary in figures.items():
            click.echo(
                f"| {seed} | {policy} | {summary['waiting_seconds_total']:,.0f} "
                f"| {summary['waiting_seconds_mean']:.1f} | {summary['qos_violation_ratio']:.4f} "
                f"| {summary['cpu_utilisation']:.3f} | {summary['jobs_finished']} | {summary['pods_bound']} "
                f"| {summary['overload_slots']} | {summary['evictions']} ({summary['online_evictions']}) "
                f"| {len(summary['services_never_ran'])} |"
            )
        faults = missed(figures, scenario)
        misses += len(faults)
        click.echo(f"seed {seed}: {'; '.join(faults) or 'every objective met'}", err=True)
    if misses:
        raise SystemExit(3)


if __name__ == "__main__":
    command()

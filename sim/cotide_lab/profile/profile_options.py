"""Options of `cotide profile`, in the groups of its `-h`.

Used by `profile_command`. Each group reaches its command as one object.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import click

from cotide_cli.inputs.checked_types import SEED
from cotide_cli.inputs.finite_range import FiniteRange
from cotide_cli.option_groups import grouped, option_group
from cotide_core.limits import MAX_LATENCY_MILLISECONDS


def numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[float, ...]:
    """Return numbers above 0, sorted, as a user writes them: ``1000,5000``."""
    try:
        found = tuple(sorted({float(part) for part in value.split(",")}))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list such as 1000,5000", ctx, param) from None
    if not all(0 < one < math.inf for one in found):
        raise click.BadParameter("every number must be above 0", ctx, param)
    return found


def cores(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Return core numbers such as ``0,2``, which this process may use."""
    if not value:
        return ()
    try:
        found = tuple(sorted({int(part) for part in value.split(",")}))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of cores such as 0,2", ctx, param) from None
    if missing := set(found) - os.sched_getaffinity(0):
        raise click.BadParameter(f"core {min(missing)} is not one that this process may use", ctx, param)
    return found


@dataclass(frozen=True, slots=True)
class CampaignOptions:
    """Options of every campaign."""

    service: str
    limit_ms: float
    seed: int
    out: Path


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster, and the place of the pods."""

    kubeconfig: str | None
    context: str | None
    node: str | None
    namespace: str


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The service and the load on it."""

    target: str | None
    load_command: str | None
    request: str
    service_command: str | None
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The jobs next to the service."""

    jobs: tuple[str, ...]
    counts: tuple[float, ...]
    pairs: bool
    job_millicores: int
    image: str | None


@dataclass(frozen=True, slots=True)
class CoreOptions:
    """The cores of each part on this machine."""

    service_cores: tuple[int, ...]
    load_cores: tuple[int, ...]
    service_millicores: int


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Length and number of a cell's windows."""

    warm_up_seconds: float
    window_seconds: float
    least: int
    most: int
    width: float


@dataclass(frozen=True, slots=True)
class EndOptions:
    """Conditions that end a campaign, or prevent harm."""

    harm_ms: float | None
    harm_seconds: float
    minutes: float


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """The watched queries, and the time."""

    url: str
    rate_query: str
    latency_query: str
    interval_seconds: float
    minutes: float


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The batch pods next to the service, and its node."""

    kinds: tuple[str, ...]
    alternate: tuple[str, ...]
    node_millicores: int


common_options = option_group(
    "Campaign",
    "campaign",
    CampaignOptions,
    grouped("--service", default="", metavar="NAMESPACE/NAME", help="The Workload; default: any service."),
    grouped(
        "--limit-ms", type=FiniteRange(0, MAX_LATENCY_MILLISECONDS, min_open=True), default=10.0, show_default=True,
        help="Its p95 limit.",
    ),
    grouped("--seed", type=SEED, default=0, show_default=True, help="Of order and arrivals."),
    grouped("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Journal and results."),
)  # fmt: skip
cluster_options = option_group(
    "Cluster",
    "cluster",
    ClusterOptions,
    grouped("--kubeconfig", type=click.Path(dir_okay=False), help="Default: $KUBECONFIG, ~/.kube/config."),
    grouped("--context", help="Context of the kubeconfig."),
    grouped("--node", help="Node of the service: run the jobs there, as pods."),
    grouped("--namespace", default="default", show_default=True, help="Of the jobs' pods."),
)
load_options = option_group(
    "Service and load",
    "load",
    LoadOptions,
    grouped("--target", help="memcached://HOST:PORT, http://HOST:PORT/PATH or tcp://HOST:PORT: built-in open loop."),
    grouped("--load-command", help="Your own load, with {rate} and {seconds}; its last line of JSON has p95_ms."),
    grouped("--request", default=r"PING\r\n", show_default=True, help="Text for a tcp target; one line answers."),
    grouped("--service-command", help="Starts the service on this machine; default: it runs already."),
    grouped("--rates", callback=numbers, required=True, metavar="N,N,...", help="Requests a second."),
)
job_options = option_group(
    "Batch jobs",
    "batch",
    JobOptions,
    grouped("--job", "jobs", multiple=True, metavar="NAME[:BYTES[:MILLICORES]]=COMMAND", help="Repeat for more."),
    grouped("--counts", callback=numbers, default="1", show_default=True, help="How many of one job at once."),
    grouped("--pairs", is_flag=True, help="Also measure every two jobs together."),
    grouped("--job-millicores", type=click.IntRange(1), default=250, show_default=True, help="Weight of one job."),
    grouped("--image", help="Of the jobs' pods, with --node."),
)
core_options = option_group(
    "Cores of this machine",
    "placed",
    CoreOptions,
    grouped("--service-cores", callback=cores, metavar="N,...", help="Cores of service and jobs."),
    grouped("--load-cores", callback=cores, metavar="N,...", help="Cores of the load generator."),
    grouped("--service-millicores", type=click.IntRange(1), default=1000, show_default=True, help="Its weight."),
)
window_options = option_group(
    "Windows of a cell",
    "windows",
    WindowOptions,
    grouped(
        "--warm-up-seconds", type=FiniteRange(min=0), default=0.5, show_default=True,
        help="Of load before each, not counted.",
    ),
    grouped(
        "--window-seconds", type=FiniteRange(min=0, min_open=True), default=4.0, show_default=True,
        help="Length of one.",
    ),
    grouped("--windows", "least", type=click.IntRange(2), default=3, show_default=True, help="At least."),
    grouped("--most-windows", "most", type=click.IntRange(2), default=8, show_default=True, help="At most."),
    grouped(
        "--width", type=FiniteRange(min=0, min_open=True), default=0.25, show_default=True,
        help="Half width of the p95's 95 % interval that ends a cell.",
    ),
)  # fmt: skip
end_options = option_group(
    "What ends it",
    "ends",
    EndOptions,
    grouped("--harm-ms", type=FiniteRange(min=0, min_open=True), help="A p95 that ends a cell and all harder."),
    grouped("--harm-seconds", type=FiniteRange(min=0), default=math.inf, help="Over the limit in all, at most."),
    grouped("--minutes", type=FiniteRange(min=0), default=15.0, show_default=True, help="Of this run, at most."),
)
prometheus_options = option_group(
    "Prometheus",
    "prometheus",
    PrometheusOptions,
    grouped("--prometheus", "url", required=True, metavar="URL", help="Where it answers."),
    grouped("--rate-query", required=True, help="PromQL: requests a second of the service's pods on the node."),
    grouped("--latency-query", required=True, help="PromQL: their p95 latency in milliseconds."),
    grouped(
        "--interval-seconds", type=FiniteRange(min=0, min_open=True), default=60.0, show_default=True,
        help="Between two readings.",
    ),
    grouped(
        "--minutes", type=FiniteRange(min=0, min_open=True), default=60.0, show_default=True, help="Of this run."
    ),
)  # fmt: skip
node_options = option_group(
    "Batch pods",
    "batch",
    NodeOptions,
    grouped("--kind", "kinds", multiple=True, required=True, metavar="NAME:BYTES:MILLICORES",
            help="A type of batch pods and what one of them is; repeat."),
    grouped("--alternate", multiple=True, metavar="NAMESPACE/JOB", help="batch/v1 Job to switch off and on."),
    grouped("--node-millicores", type=click.IntRange(1), required=True, help="Allocatable cpu of the node."),
)  # fmt: skip

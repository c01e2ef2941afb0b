"""``cotide node-agent``: the optional agent of one node (docs/features/node-agent.md).

Runs until SIGTERM or SIGINT and leaves the kernel's defaults behind. Exit codes: 0 after a signal, 1 after a failure, 2
for a mistake in options.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.inputs.finite_range import FiniteRange
from cotide_cli.inputs.host_option import host
from cotide_cli.option_groups import GroupedCommand, grouped, option_group

if TYPE_CHECKING:
    from cotide_node_agent.service import AgentOptions

SHARE = FiniteRange(0, 1, min_open=True)


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Where the node's own files are."""

    cgroup_mount: Path
    cgroup_root: str
    proc: Path
    journal: Path


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """When and how fast batch pods are held back."""

    target_share: float
    half_life: float
    contended_share: float
    interval: float


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Where metrics and health are served."""

    metrics_host: str
    metrics_port: int


@click.command(cls=GroupedCommand)
@click.option("--node", envvar="NODE_NAME", required=True, help="Name of the node; default: $NODE_NAME.")
@click.option("--kubeconfig", help="Kubeconfig file; default: $KUBECONFIG, the service account, ~/.kube/config.")
@option_group(
    "Files of the host",
    "host",
    HostOptions,
    grouped(
        "--cgroup-mount",
        type=click.Path(path_type=Path),
        default=Path("/sys/fs/cgroup"),
        show_default=True,
        help="Where the host's control groups are mounted, writable.",
    ),
    grouped("--cgroup-root", default="", help="The kubelet's cgroupRoot, where it has one."),
    grouped(
        "--proc",
        type=click.Path(path_type=Path),
        default=Path("/proc"),
        show_default=True,
        help="The proc file system of the host's processes.",
    ),
    grouped(
        "--journal",
        type=click.Path(path_type=Path),
        default=Path("/run/cotide/node-agent.json"),
        show_default=True,
        help="Record of changes and how to undo them; must outlive the container.",
    ),
)
@option_group(
    "Control",
    "control",
    ControlOptions,
    grouped("--target-share", type=SHARE, default=0.95, show_default=True, help="Of the cpus, for all pods together."),
    grouped(
        "--half-life",
        type=FiniteRange(0.1, 3600),
        default=5.0,
        show_default=True,
        help="Seconds until half of the cpu taken from batch pods is given back.",
    ),
    grouped(
        "--contended-share",
        type=SHARE,
        default=0.2,
        show_default=True,
        help="Share of time that services wait for a cpu, above which batch is cut.",
    ),
    grouped("--interval", type=FiniteRange(0.05, 1.0), default=0.25, show_default=True, help="Seconds a tick."),
)
@option_group(
    "Metrics",
    "metrics",
    MetricsOptions,
    grouped(
        "--metrics-host", default="127.0.0.1", callback=host, show_default=True, help="Address for metrics and health."
    ),
    grouped(
        "--metrics-port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="0 takes a free one."
    ),
)
@click.option("--undo", is_flag=True, help="Only put back what an agent before left, and end.")
@click.option(
    "--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info", show_default=True
)
def command(
    node: str,
    kubeconfig: str | None,
    host: HostOptions,
    control: ControlOptions,
    metrics: MetricsOptions,
    undo: bool,
    log_level: str,
) -> None:
    """Hold batch pods of one node back while services need its cpu."""
    from cotide_node_agent.control_law import LawSettings
    from cotide_node_agent.service import AgentOptions, undo_what_was_left
    from cotide_operator.observability.logging_setup import set_up

    set_up(log_level, "text")
    if undo:
        undo_what_was_left(host.journal)
        return
    law = LawSettings(
        target_share=control.target_share,
        half_life_seconds=control.half_life,
        contended_share=control.contended_share,
        calm_share=control.contended_share / 2,
    )
    options = AgentOptions(
        node, kubeconfig, host.cgroup_mount, host.cgroup_root, host.proc, host.journal, control.interval,
        metrics.metrics_host, metrics.metrics_port, law,
    )  # fmt: skip
    asyncio.run(_run(options))


async def _run(options: AgentOptions) -> None:
    from cotide_node_agent.service import run

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(options, stop)

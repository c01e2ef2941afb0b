"""`cotide nodes`: fake nodes on any API server.

Called by `main`. Parses the options, then hands over to `cotide_sim.kubelets.fleet`. Logs go to stderr; with
``--metrics-port`` the address of the metrics page is printed on stdout once the nodes are ready.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import signal
import sys
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.inputs.host_option import host
from cotide_cli.option_groups import GroupedCommand, grouped, option_group
from cotide_core.errors import ClusterError, InputError
from cotide_core.limits import INT32_MOST, MAX_EPOCH
from cotide_core.units import CPU, MEMORY, resource_amount

if TYPE_CHECKING:
    from cotide_kube.client import KubeClient
    from cotide_kube.credentials import Credentials
    from cotide_kube.objects import TaintObject
    from cotide_sim.interference.model import Interference
    from cotide_sim.kubelets.fleet import Fleet, FleetSettings
    from cotide_sim.kubelets.node_objects import NodeShape

_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]*)")
SPEED_LEAST, MAX_SPEED = 1e-6, 1e6
"""Simulated seconds per second (chosen: eleven days in a second, and the other way round)."""
MAX_MODEL = 64 << 20
"""Bytes of a saved model of interference (chosen: a thousand times one)."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The API server of the nodes."""

    kubeconfig: str | None
    context: str | None


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Number and properties of the nodes."""

    count: int
    cpu: str
    memory: str
    pods: int
    labels: tuple[str, ...]
    taints: tuple[str, ...]
    name_prefix: str
    cleanup: bool


@dataclass(frozen=True, slots=True)
class TimeOptions:
    """The clock of the nodes."""

    speed: float
    origin_seconds: float | None


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Address of the metrics."""

    metrics_port: int | None
    metrics_host: str


@click.command(cls=GroupedCommand)
@option_group(
    "Cluster",
    "cluster",
    ClusterOptions,
    grouped("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, in-cluster, ~/.kube/config."),
    grouped("--context", metavar="NAME", help="Context of the kubeconfig."),
)
@option_group(
    "Nodes",
    "nodes",
    NodeOptions,
    grouped("--count", default=3, show_default=True, type=click.IntRange(1, 5000), help="How many nodes."),
    grouped("--cpu", default="8", show_default=True, metavar="QUANTITY", help="CPU of each node."),
    grouped("--memory", default="32Gi", show_default=True, metavar="QUANTITY", help="Memory of each node."),
    grouped(
        "--pods", default=110, show_default=True, type=click.IntRange(1, INT32_MOST), help="Pods that fit on each node."
    ),
    grouped("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label of every node; repeat for more."),
    grouped("--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="Taint of every node; repeat."),
    grouped("--name-prefix", default="fake-", show_default=True, help="Nodes are PREFIX0, PREFIX1, ..."),
    grouped("--cleanup", is_flag=True, help="Delete the nodes on exit."),
)
@option_group(
    "Simulated time",
    "time",
    TimeOptions,
    grouped("--speed", default=1.0, show_default=True, help="Simulated seconds per second."),
    grouped("--origin-seconds", type=float, help="Epoch second at which simulated time begins. Default: now."),
)
@option_group(
    "Metrics",
    "metrics",
    MetricsOptions,
    grouped("--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics here; 0 takes any free port."),
    grouped(
        "--metrics-host", default="127.0.0.1", callback=host, show_default=True, help="Address to serve metrics on."
    ),
)
@click.option(
    "--interference",
    default="generated",
    show_default=True,
    metavar="generated|measured:DIR|FILE",
    help="How pods on a node slow each other: the built-in formula, a directory of measurements, or a saved model.",
)
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)
def command(
    cluster: ClusterOptions,
    nodes: NodeOptions,
    time: TimeOptions,
    metrics: MetricsOptions,
    interference: str,
    log_level: str,
) -> None:
    """Run fake nodes on any API server: kubelets without containers, with physics.

    \b
    Annotations set the behaviour of a pod (times are simulated seconds):
      - sim.cotide.dev/lone-seconds          Run time alone; default: by cotide.dev/type and
                                             cotide.dev/input-size, otherwise 30
      - sim.cotide.dev/exit-code             Exit code at its end; default 0
      - sim.cotide.dev/rates                 Requests per second of an online pod: 5000,7000,...
      - sim.cotide.dev/used-millicores       Cpu of an online pod, likewise: 800,1200,...; default: the
                                             cpu that its rates take
      - sim.cotide.dev/rates-step-seconds    Time from one rate to the next; default 60
      - sim.cotide.dev/rates-origin-seconds  Time of the first rate; default --origin-seconds
      - sim.cotide.dev/rate-factor,          Factors on the rate and the latency of the service with
        sim.cotide.dev/latency-factor        modelled interference, for this online pod; default 1

    Pods labelled cotide.dev/class=batch or gratis, with lone seconds, or with a restartPolicy other than Always
    end; all others run until they are deleted.
    """
    from cotide_kube.credentials import load_credentials
    from cotide_sim.kubelets.fleet import FleetSettings

    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if not (math.isfinite(time.speed) and time.speed > 0):
        raise InputError(f"{time.speed:g} is not a speed-up: it must be a number above 0", field="--speed")
    if not SPEED_LEAST <= time.speed <= MAX_SPEED:
        words = f"{time.speed:g} is not a possible speed of pods; {SPEED_LEAST:g} to {MAX_SPEED:g}"
        raise InputError(words, field="--speed")
    if time.origin_seconds is not None and not 0 <= time.origin_seconds <= MAX_EPOCH:
        words = f"{time.origin_seconds:g} is not an epoch second from 1970 to the year 9999"
        raise InputError(words, field="--origin-seconds")
    if _PREFIX.fullmatch(nodes.name_prefix) is None:
        raise InputError(f"{nodes.name_prefix!r} can't begin a node's name (a-z, 0-9, - and .)", field="--name-prefix")
    settings = FleetSettings(
        interference=_interference(interference),
        count=nodes.count,
        name_prefix=nodes.name_prefix,
        shape=_shape(nodes),
        origin_seconds=time.origin_seconds,
        speed=time.speed,
        metrics_host=metrics.metrics_host,
        metrics_port=metrics.metrics_port,
        cleanup=nodes.cleanup,
    )
    _event_loop_run(load_credentials(cluster.kubeconfig, cluster.context), settings)


def _shape(nodes: NodeOptions) -> NodeShape:
    from cotide_sim.kubelets.node_objects import NodeShape

    return NodeShape(
        millicores=_amount("--cpu", CPU, nodes.cpu),
        memory_bytes=_amount("--memory", MEMORY, nodes.memory),
        pods=nodes.pods,
        labels=dict(_label(text) for text in nodes.labels),
        taints=tuple(_taint(text) for text in nodes.taints),
    )


def _event_loop_run(credentials: Credentials, settings: FleetSettings) -> None:
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:  # it does not exist on Windows
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_run(credentials, settings))


async def _run(credentials: Credentials, settings: FleetSettings) -> None:
    from cotide_kube.client import ANSWER_SECONDS, KubeClient
    from cotide_sim.kubelets.fleet import Fleet

    # Later a server may be absent for minutes; a silent server at the start is reported while a person looks.
    async with KubeClient(credentials, timeout_seconds=ANSWER_SECONDS, asks_silence_again=False) as first:
        await _greet(first)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with KubeClient(credentials) as client:
        fleet = Fleet(client, settings)
        telling = asyncio.create_task(_emit(fleet))
        try:
            await fleet.run(stop)
        finally:
            telling.cancel()


async def _greet(client: KubeClient) -> None:
    """Ask an API server for its version; a refusal also counts as an API server.

    Raises
    ------
    ClusterError
        When it does not answer, rejects the credentials, or does not answer like an API server.
    """
    from cotide_kube.answers import ApiError

    try:
        version = await client.get("/version")
    except ApiError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        return
    if not isinstance(version.get("gitVersion"), str):
        raise ClusterError(f"{client.credentials.described} returns no version of an API server; is it one?")


async def _emit(fleet: Fleet) -> None:
    await fleet.ready.wait()
    if fleet.metrics_port is not None:
        click.echo(f"http://{fleet.settings.metrics_host}:{fleet.metrics_port}/metrics")


def _amount(option: str, resource: str, text: str) -> int:
    try:
        amount = resource_amount(resource, text)
    except InputError as error:
        raise InputError(str(error), field=option) from error
    if amount <= 0:
        raise InputError(f"{text} must be above 0", field=option)
    return amount


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise InputError(f"{text!r} is not a label (write KEY=VALUE)", field="--label")
    return key, value


def _taint(text: str) -> TaintObject:
    from cotide_kube.objects import TaintObject

    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not key or effect not in _EFFECTS:
        raise InputError(f"{text!r} is not a taint (write KEY=VALUE:{'|'.join(_EFFECTS)})", field="--taint")
    return TaintObject(key=key, value=value, effect=effect)


def _interference(text: str) -> Interference:
    from cotide_files.bounded_text import read_bounded
    from cotide_sim.interference.model import GeneratedInterference, MeasuredInterference, interference_from_json

    if text == "generated":
        return GeneratedInterference()
    kind, _, directory = text.partition(":")
    if kind == "measured" and directory:
        return MeasuredInterference.from_directory(Path(directory))
    try:
        return interference_from_json(read_bounded(Path(text), MAX_MODEL).decode("utf-8"), file=text)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't be read: {error}", file=text, field="--interference") from error

"""`cotide profile`: measure one service beside batch work; samples, a model and a page.

Called by `main`. Parses the options of ``active``, ``passive`` and ``page``, and hands over to `campaign` or `passive`,
then to `results` and `page`. Invariant: Ctrl-C and a failure leave a journal with which the same command goes on.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cotide_cli.printing import as_text, made, output_option, print_lines, progress_bar
from cotide_cli.profile.campaign import Budget, Machine, run_campaign
from cotide_cli.profile.journal import Journal
from cotide_cli.profile.local_machine import LocalMachine
from cotide_cli.profile.meters import LoadCommand, address_of
from cotide_cli.profile.plan import BatchJob, Plan
from cotide_core.errors import InputError
from cotide_core.units import resource_amount
from cotide_predictors.profiling.design import Rule
from cotide_predictors.profiling.windows import JobKind

MISSED: Final = 3
"""Exit code where the campaign ended before every cell was measured."""
_JOB: Final = re.compile(r"([A-Za-z0-9][\w.-]*)(?::([^:=]*))?(?::([0-9]+))?=(.+)", re.DOTALL)
F = TypeVar("F", bound=Callable[..., Any])


def numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[float, ...]:
    """Return numbers above 0, sorted, as a user writes them: ``1000,5000``."""
    try:
        found = tuple(sorted({float(part) for part in value.split(",")}))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list such as 1000,5000", ctx, param) from None
    if not all(0 < one < math.inf for one in found):
        raise click.BadParameter("every number must be above 0", ctx, param)
    return found


def read_job(text: str, default_millicores: int) -> BatchJob:
    """Return the job of ``NAME[:BYTES[:MILLICORES]]=COMMAND``.

    Raises
    ------
    InputError
        When it is none.
    """
    found = _JOB.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} is not NAME[:BYTES[:MILLICORES]]=COMMAND", field="--job")
    name, size, millicores, command = found.groups()
    try:
        kind = JobKind(name, resource_amount("bytes", size) if size else 0, int(millicores or default_millicores))
    except InputError as error:
        raise InputError(str(error), field="--job") from error
    if kind.millicores <= 0 or kind.input_bytes < 0:
        raise InputError(f"{text!r} needs a size >= 0 and millicores > 0", field="--job")
    return BatchJob(kind, command)


def cores(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Return core numbers such as ``0,2``, which this process may use."""
    if not value:
        return ()
    try:
        found = tuple(sorted({int(part) for part in value.split(",")}))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of cores such as 0,2", ctx, param) from None
    if missing := set(found) - os.sched_getaffinity(0):
        raise click.BadParameter(f"core {min(missing)} is none that this process may use", ctx, param)
    return found


def common_options(command: F) -> F:
    """Add the options that every campaign has."""
    for option in (
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of order and arrivals."),
        click.option("--service", default="", metavar="NAMESPACE/NAME", help="The Workload; default: any service."),
        click.option("--limit-ms", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True),
        click.option(
            "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Journal and results."
        ),
        output_option,
    ):
        command = option(command)
    return command


def cluster_options(command: F) -> F:
    """Add the options that say which cluster, and where the pods go."""
    for option in (
        click.option("--namespace", default="default", show_default=True, help="Of the jobs' pods."),
        click.option("--node", help="Node of the service: run the jobs there, as pods."),
        click.option("--context", help="Context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Default: $KUBECONFIG, ~/.kube/config."),
    ):
        command = option(command)
    return command


@click.group("profile")
def command() -> None:
    """Measure one service beside batch work: samples, a model, a page (docs/profile.md)."""


@command.command("active")
@click.option("--target", help="memcached://HOST:PORT, http://HOST:PORT/PATH or tcp://HOST:PORT: built-in open loop.")
@click.option("--load-command", help="Your own load, with {rate} and {seconds}; its last line is JSON with p95_ms.")
@click.option("--request", default=r"PING\r\n", show_default=True, help="What a tcp target is sent; one line answers.")
@click.option("--service-command", help="Starts the service on this machine; default: it runs already.")
@click.option("--rates", callback=numbers, required=True, metavar="N,N,...", help="Requests a second.")
@click.option("--job", "jobs", multiple=True, metavar="NAME[:BYTES[:MILLICORES]]=COMMAND", help="Repeat for more.")
@click.option("--counts", callback=numbers, default="1", show_default=True, help="How many of one job at once.")
@click.option("--pairs", is_flag=True, help="Also measure every two jobs together.")
@click.option("--service-cores", callback=cores, metavar="N,...", help="Cores of service and jobs.")
@click.option("--load-cores", callback=cores, metavar="N,...", help="Cores of the load generator.")
@click.option("--service-millicores", type=click.IntRange(1), default=1000, show_default=True, help="Its weight.")
@click.option("--job-millicores", type=click.IntRange(1), default=250, show_default=True, help="Weight of one job.")
@click.option("--image", help="Of the jobs' pods, with --node.")
@click.option("--warm-up-seconds", type=click.FloatRange(min=0), default=0.5, show_default=True)
@click.option("--window-seconds", type=click.FloatRange(min=0, min_open=True), default=4.0, show_default=True)
@click.option("--windows", "least", type=click.IntRange(2), default=3, show_default=True, help="Of a cell, at least.")
@click.option(
    "--most-windows", "most", type=click.IntRange(2), default=8, show_default=True, help="Of a cell, at most."
)
@click.option("--width", type=click.FloatRange(min=0, min_open=True), default=0.25, show_default=True,
              help="Half width of the p95's 95 % interval that ends a cell.")  # fmt: skip
@click.option("--harm-ms", type=click.FloatRange(min=0, min_open=True), help="A p95 that ends a cell and all harder.")
@click.option("--harm-seconds", type=click.FloatRange(min=0), default=math.inf, help="Over the limit in all, at most.")
@click.option("--minutes", type=click.FloatRange(min=0), default=15.0, show_default=True, help="Of this run, at most.")
@cluster_options
@common_options
def active(  # one argument an option: click hands them over by name
    target: str | None, load_command: str | None, request: str, service_command: str | None, rates: tuple[float, ...],
    jobs: tuple[str, ...], counts: tuple[float, ...], pairs: bool, service_cores: tuple[int, ...],
    load_cores: tuple[int, ...], service_millicores: int, job_millicores: int, image: str | None,
    warm_up_seconds: float, window_seconds: float, least: int, most: int, width: float, harm_ms: float | None,
    harm_seconds: float, minutes: float, kubeconfig: str | None, context: str | None, node: str | None,
    namespace: str, out: Path, limit_ms: float, service: str, seed: int, output: str,
) -> int:  # fmt: skip
    """Drive the service at several rates beside several mixes of jobs.

    \b
    On this machine:
      cotide profile active --target memcached://127.0.0.1:11211 --service-command 'memcached -t 1 -p 11211' \\
        --rates 1000,10000,50000 --job 'sort:237M=sort -o /dev/null words.txt' --service-cores 0 --load-cores 1 \\
        --limit-ms 1 --out campaign

    Stopped anywhere, the same command goes on. In a cluster: --node and --image run the jobs as pods on that node.
    """
    if (target is None) == (load_command is None):
        raise click.UsageError("give exactly one of --target and --load-command")
    if most < least:
        raise click.UsageError(f"--most-windows {most} is below --windows {least}")
    if node is not None and (image is None or service_command is not None):
        raise click.UsageError("with --node the service runs already, and the jobs need --image")
    plan = Plan(
        mode="active",
        source=target or load_command or "",
        jobs=_jobs(jobs, job_millicores),
        rates=rates,
        counts=_whole(counts),
        pairs=pairs,
        warm_up_seconds=warm_up_seconds,
        window_seconds=window_seconds,
        rule=Rule(least, most, width, math.inf if harm_ms is None else harm_ms),
        limit_milliseconds=limit_ms,
        allocatable_millicores=1000 * len(service_cores or os.sched_getaffinity(0)),
        service=service,
        seed=seed,
    )
    meter = LoadCommand(plan.source, request=request, cores=load_cores)
    journal = Journal(out, plan)
    with ExitStack() as running, progress_bar() as progress:
        machine: Machine
        if node is not None:
            from cotide_cli.profile.cluster_jobs import ClusterMachine

            machine = ClusterMachine(node, namespace, image or "", kubeconfig=kubeconfig, context=context)
        else:
            local = running.enter_context(LocalMachine(service_cores, service_millicores))
            if service_command is not None:
                if target is None:
                    raise click.UsageError("--service-command needs --target, to know when the service answers")
                local.start_service(service_command, address_of(target))
            machine = local
        budget = Budget(minutes * 60.0, harm_seconds)
        note = run_campaign(journal, machine, meter, budget, progress)
        if node is None and not local.weighted:
            click.echo("no cgroup may be made here: weights were set by niceness", err=True)
    return _finish(out, journal, note, output)


@command.command("passive")
@click.option("--prometheus", "url", required=True, metavar="URL")
@click.option("--rate-query", required=True, help="PromQL: requests a second of the service's pods on the node.")
@click.option("--latency-query", required=True, help="PromQL: their p95 latency in milliseconds.")
@click.option("--kind", "kinds", multiple=True, required=True, metavar="NAME:BYTES:MILLICORES",
              help="A type of batch pods and what one of them is; repeat.")  # fmt: skip
@click.option(
    "--alternate", "alternate", multiple=True, metavar="NAMESPACE/JOB", help="batch/v1 Job to switch off and on."
)
@click.option("--node-millicores", type=click.IntRange(1), required=True, help="Allocatable cpu of the node.")
@click.option("--interval-seconds", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True)
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True)
@cluster_options
@common_options
def passive(
    url: str, rate_query: str, latency_query: str, kinds: tuple[str, ...], alternate: tuple[str, ...],
    node_millicores: int, interval_seconds: float, minutes: float, kubeconfig: str | None, context: str | None,
    node: str | None, namespace: str, out: Path, limit_ms: float, service: str, seed: int, output: str,
) -> int:  # fmt: skip
    """Watch Prometheus while batch pods come and go on the service's node."""
    from kubernetes import client

    from cotide_cli.profile.cluster_jobs import ClusterMachine
    from cotide_cli.profile.passive import Alternation, Watch, mix_of_pods, read_kind, watch
    from cotide_kube.official import connect

    if node is None:
        raise click.UsageError("--node is missing: the node whose batch pods are counted")
    jobs = tuple(BatchJob(read_kind(text), "") for text in kinds)
    _check_names(jobs)
    plan = Plan(
        mode="passive", source=latency_query, jobs=jobs, rates=(), counts=(), pairs=False, warm_up_seconds=0.0,
        window_seconds=interval_seconds, rule=Rule(), limit_milliseconds=limit_ms,
        allocatable_millicores=node_millicores, service=service, seed=seed,
    )  # fmt: skip
    named = [_job_key(text, namespace) for text in alternate]
    machine = ClusterMachine(node, namespace, "", kubeconfig=kubeconfig, context=context)
    api = client.BatchV1Api(connect(kubeconfig, context)) if named else None
    journal = Journal(out, plan)
    of_node = tuple(job.kind for job in jobs)
    what = Watch(url.rstrip("/"), rate_query, latency_query, interval_seconds, minutes * 60.0)
    with progress_bar() as progress:
        note = asyncio.run(
            watch(
                journal, what, lambda: mix_of_pods(machine.pods_of_node(), of_node), Alternation(api, named), progress
            )
        )
    return _finish(out, journal, note, output)


@command.command("page")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@output_option
def page_again(directory: Path, output: str) -> int:
    """Make samples, model and page of DIRECTORY again, from its journal."""
    return _finish(directory, Journal(directory, None), "", output)


def _finish(out: Path, journal: Journal, note: str, output: str) -> int:
    """Write the results and print them; return the exit code."""
    from cotide_cli.profile.page import described, lead, write_page
    from cotide_cli.profile.results import PAGE, make_results

    with progress_bar() as progress:
        results = make_results(out, journal, note, progress)
    write_page(out / PAGE, journal, results, made())
    if output != "table":
        click.echo(as_text(results.as_document(journal), output))
    else:
        click.echo(lead(journal, results))
        heads = ("mix", "rate", "p95 ms", "95 % interval", "windows", "standing")
        rows = [
            (
                one.cell.named(), f"{one.cell.rate:g}", f"{one.p95.middle:.3g}",
                f"{one.p95.low:.3g}-{one.p95.high:.3g}", str(one.p95.windows), str(results.where.get(one.cell, "")),
            )
            for one in results.cells
        ]  # fmt: skip
        print_lines([heads, *rows])
        click.echo(f"{described(journal)}; page {out / PAGE}, samples {out / 'samples.csv'}")
        for warning in results.warnings:
            click.echo(f"warning: {warning}")
        if results.refused:
            click.echo(f"no model: {results.refused}")
    if note:
        click.echo(f"cotide: {note}", err=True)
    return MISSED if note and journal.plan.mode == "active" else 0


def _jobs(texts: Sequence[str], default_millicores: int) -> tuple[BatchJob, ...]:
    found = tuple(read_job(text, default_millicores) for text in texts)
    _check_names(found)
    return found


def _check_names(jobs: Sequence[BatchJob]) -> None:
    names = [job.kind.name for job in jobs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name!r} is named twice", field="--job")


def _whole(counts: Sequence[float]) -> tuple[int, ...]:
    if any(not float(count).is_integer() for count in counts):
        raise click.UsageError("--counts takes whole numbers")
    return tuple(int(count) for count in counts)


def _job_key(text: str, namespace: str) -> tuple[str, str]:
    before, slash, name = text.rpartition("/")
    return (before if slash else namespace, name)

"""`cotide profile`: measure one service next to batch work; samples, a model and a page.

Called by `main`. Parses the options of ``active``, ``passive`` and ``page``, and hands over to `campaign` or `passive`,
then to `results` and `page`. Invariant: after Ctrl-C or a failure, the same command continues from the journal.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cotide_cli.option_groups import GroupedCommand
from cotide_cli.printing import as_text, output_option, print_lines, progress_bar
from cotide_cli.stopping import UNDO_SECONDS, interrupted_when_told, run_until_told
from cotide_core.errors import InputError
from cotide_core.units import resource_amount
from cotide_lab.predictors.profiling.design import Rule
from cotide_lab.predictors.profiling.windows import JobKind
from cotide_lab.profile.campaign import Budget, run_campaign
from cotide_lab.profile.journal import Journal
from cotide_lab.profile.local_machine import STOP_SECONDS, LocalMachine
from cotide_lab.profile.meters import LoadCommand, address_of
from cotide_lab.profile.plan import BatchJob, Plan
from cotide_lab.profile.profile_options import (
    CampaignOptions,
    ClusterOptions,
    CoreOptions,
    EndOptions,
    JobOptions,
    LoadOptions,
    NodeOptions,
    PrometheusOptions,
    WindowOptions,
    cluster_options,
    common_options,
    core_options,
    end_options,
    job_options,
    load_options,
    node_options,
    prometheus_options,
    window_options,
)
from cotide_sim.pages.origin import made

if TYPE_CHECKING:
    from cotide_lab.profile.cluster_jobs import ClusterMachine

MISSED: Final = 3
"""Exit code when the campaign ended before every cell was measured."""
LEFT_RUNNING: Final = "jobs may be left running; in a cluster they are pods with the label cotide.dev/profile"
LEFT_SUSPENDED: Final = "Jobs of --alternate may be left suspended"
_JOB: Final = re.compile(r"([A-Za-z0-9][\w.-]*)(?::([^:=]*))?(?::([0-9]+))?=(.+)", re.DOTALL)


def read_job(text: str, default_millicores: int) -> BatchJob:
    """Return the job of ``NAME[:BYTES[:MILLICORES]]=COMMAND``.

    Raises
    ------
    InputError
        When it is not such a job.
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


@click.group("profile")
def command() -> None:
    """Measure one service next to batch work: samples, a model, a page (docs/features/profile.md)."""


@command.command("active", cls=GroupedCommand)
@load_options
@job_options
@core_options
@window_options
@end_options
@cluster_options
@common_options
@output_option
def active(
    load: LoadOptions,
    batch: JobOptions,
    placed: CoreOptions,
    windows: WindowOptions,
    ends: EndOptions,
    cluster: ClusterOptions,
    campaign: CampaignOptions,
    output: str,
) -> int:
    """Drive the service at several rates next to several mixes of jobs.

    \b
    On this machine:
      cotide profile active --target memcached://127.0.0.1:11211 --service-command 'memcached -t 1 -p 11211' \\
        --rates 1000,10000,50000 --job 'sort:237M=sort -o /dev/null words.txt' --service-cores 0 --load-cores 1 \\
        --limit-ms 1 --out campaign

    After a stop, the same command continues. In a cluster: --node and --image run the jobs as pods on that node.
    """
    if (load.target is None) == (load.load_command is None):
        raise click.UsageError("give exactly one of --target and --load-command")
    if windows.most < windows.least:
        raise click.UsageError(f"--most-windows {windows.most} is below --windows {windows.least}")
    if cluster.node is not None and (batch.image is None or load.service_command is not None):
        raise click.UsageError("with --node the service runs already, and the jobs need --image")
    harm = math.inf if ends.harm_ms is None else ends.harm_ms
    plan = Plan(
        mode="active",
        source=load.target or load.load_command or "",
        jobs=_jobs(batch.jobs, batch.job_millicores),
        rates=load.rates,
        counts=_whole(batch.counts),
        pairs=batch.pairs,
        warm_up_seconds=windows.warm_up_seconds,
        window_seconds=windows.window_seconds,
        rule=Rule(windows.least, windows.most, windows.width, harm),
        limit_milliseconds=campaign.limit_ms,
        allocatable_millicores=1000 * len(placed.service_cores or os.sched_getaffinity(0)),
        service=campaign.service,
        seed=campaign.seed,
    )
    meter = LoadCommand(plan.source, request=load.request, cores=placed.load_cores)
    journal = Journal(campaign.out, plan)
    budget = Budget(ends.minutes * 60.0, ends.harm_seconds)
    # A service on this machine gets a signal to end, and is killed after `STOP_SECONDS`.
    at_most = 2 * STOP_SECONDS if cluster.node is None else UNDO_SECONDS
    with interrupted_when_told(LEFT_RUNNING, at_most), ExitStack() as running, progress_bar() as progress:
        if cluster.node is not None:
            note = run_campaign(journal, _machine_of(cluster, batch.image or ""), meter, budget, progress)
        else:
            local = running.enter_context(LocalMachine(placed.service_cores, placed.service_millicores))
            if load.service_command is not None:
                if load.target is None:
                    raise click.UsageError("--service-command needs --target, to know when the service answers")
                local.start_service(load.service_command, address_of(load.target))
            note = run_campaign(journal, local, meter, budget, progress)
            if not local.weighted:
                click.echo("no cgroup may be made here: weights were set by niceness", err=True)
    return _finish(campaign.out, journal, note, output)


@command.command("passive", cls=GroupedCommand)
@prometheus_options
@node_options
@cluster_options
@common_options
@output_option
def passive(
    prometheus: PrometheusOptions, batch: NodeOptions, cluster: ClusterOptions, campaign: CampaignOptions, output: str
) -> int:
    """Watch Prometheus while batch pods come and go on the service's node."""
    from kubernetes import client

    from cotide_kube.official import connect
    from cotide_lab.profile.passive import Alternation, Watch, mix_of_pods, read_kind, watch

    if cluster.node is None:
        raise click.UsageError("--node is missing: the node whose batch pods are counted")
    jobs = tuple(BatchJob(read_kind(text), "") for text in batch.kinds)
    _check_names(jobs)
    plan = Plan(
        mode="passive", source=prometheus.latency_query, jobs=jobs, rates=(), counts=(), pairs=False,
        warm_up_seconds=0.0, window_seconds=prometheus.interval_seconds, rule=Rule(),
        limit_milliseconds=campaign.limit_ms, allocatable_millicores=batch.node_millicores, service=campaign.service,
        seed=campaign.seed,
    )  # fmt: skip
    named = [_job_key(text, cluster.namespace) for text in batch.alternate]
    machine = _machine_of(cluster, "")
    api = client.BatchV1Api(connect(cluster.kubeconfig, cluster.context)) if named else None
    journal = Journal(campaign.out, plan)
    of_node = tuple(job.kind for job in jobs)
    what = Watch(
        prometheus.url.rstrip("/"), prometheus.rate_query, prometheus.latency_query, prometheus.interval_seconds,
        prometheus.minutes * 60.0,
    )  # fmt: skip
    with progress_bar() as progress:
        note = run_until_told(
            watch(
                journal, what, lambda: mix_of_pods(machine.pods_of_node(), of_node), Alternation(api, named), progress
            ),
            LEFT_SUSPENDED if named else "",
        )
    return _finish(campaign.out, journal, note, output)


@command.command("page")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@output_option
def page_again(directory: Path, output: str) -> int:
    """Make samples, model and page of DIRECTORY again, from its journal."""
    return _finish(directory, Journal(directory, None), "", output)


def _machine_of(cluster: ClusterOptions, image: str) -> ClusterMachine:
    from cotide_lab.profile.cluster_jobs import ClusterMachine

    return ClusterMachine(
        cluster.node or "", cluster.namespace, image, kubeconfig=cluster.kubeconfig, context=cluster.context
    )


def _finish(out: Path, journal: Journal, note: str, output: str) -> int:
    """Write the results and print them; return the exit code."""
    from cotide_lab.profile.page import described, lead, write_page
    from cotide_lab.profile.results import PAGE, make_results

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
                cell.cell.named(), f"{cell.cell.rate:g}", f"{cell.p95.middle:.3g}",
                f"{cell.p95.low:.3g}-{cell.p95.high:.3g}", str(cell.p95.windows), str(results.where.get(cell.cell, "")),
            )
            for cell in results.cells
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

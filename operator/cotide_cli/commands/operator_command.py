"""``cotide operator``: the live operator, in or out of a cluster.

Reads the configuration, applies the options of the command line, and runs the assembly until SIGTERM or SIGINT. Exit
codes: 0 after a signal, 1 after a failure, 2 for a mistake in options or configuration.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cotide_cli.abandoned_calls import AbandonedCalls
from cotide_cli.inputs.host_option import host

if TYPE_CHECKING:
    from cotide_operator.cache.reflectors import Informers
    from cotide_operator.config.settings import Settings

GC_OBJECTS_AT_FIRST: Final = 2_000_000
"""The same until everything was listed; chosen above the objects of 100,000 pods, which all stay."""
SWITCH_SECONDS: Final = 0.0005
"""Longest turn of a thread while libraries are loaded in one and lists arrive in the other; chosen: a page comes in
some ten pieces, and each would wait for Python's usual 5 ms."""

ALLOCATOR: Final = {-8: 2, -3: 4 * 1024 * 1024, -1: 8 * 1024 * 1024}
"""Options of glibc's `mallopt`: M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD. Chosen: pages of lists are larger
than four megabytes and are given back whole; the engine's arrays are smaller and stay. Threads share two heaps, since
each of eight would keep its freed memory. By default glibc raises the thresholds to the size of the last freed
block."""


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="CotideConfiguration file (YAML).")
@click.option("--kubeconfig", help="Kubeconfig file; default: $KUBECONFIG, the service account, ~/.kube/config.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--policy", help="Policy instead of the configured one.")
@click.option("--models", type=click.Path(path_type=Path), help="Directory of model files.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Directory to write the ledger into.")
@click.option(
    "--metrics-host",
    callback=host,
    help="Address for metrics and health; default: loopback, in a cluster every address.",
)
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one."
)
@click.option("--install-crds", is_flag=True, help="Apply the CustomResourceDefinitions and PriorityClasses first.")
@click.option(
    "--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info", show_default=True
)
@click.option("--log-format", type=click.Choice(("text", "json")), default="text", show_default=True)
def command(
    config: Path | None,
    kubeconfig: str | None,
    context: str | None,
    policy: str | None,
    models: Path | None,
    ledger: Path | None,
    metrics_host: str | None,
    metrics_port: int,
    install_crds: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Run the operator, in or out of a cluster."""
    # One decision's arrays are small: threads of BLAS and OpenMP that wait for each other took most of a call's time.
    # Set before the first import that reads it; a value from outside takes precedence.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _give_memory_back()
    # Thousands of lasting objects come with the first lists: a collection after each 700 took a fifth of the time.
    gc.set_threshold(GC_OBJECTS_AT_FIRST, *gc.get_threshold()[1:])
    # Imported here: they take a quarter of a second to load, and `--help` need not wait for them.
    import uvloop

    from cotide_operator.observability.logging_setup import set_up

    set_up(log_level, "json" if log_format == "json" else "text")
    changes: dict[str, Any] = {"policy": policy, "models": models, "ledger": ledger}
    options = {
        "kubeconfig": kubeconfig,
        "context": context,
        "metrics_host": metrics_host,
        "metrics_port": metrics_port,
        "install_crds": install_crds,
    }
    # A loop of our own rather than a global policy: kopf makes one in its thread.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_operate(config, changes, options))


def _give_memory_back() -> None:
    """Make the C library give freed memory back, where it supports that; MALLOC_... from outside takes precedence."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name.startswith("MALLOC_") for name in os.environ):
        return
    for option, value in ALLOCATOR.items():
        mallopt(option, value)


async def _operate(config: Path | None, changes: dict[str, Any], options: dict[str, Any]) -> None:
    """Follow the cluster, load the engine meanwhile, and run until a signal asks to stop."""
    from cotide_operator.observability.logging_setup import log_broken_connections

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_broken_connections)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    informers = _follow(options)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        settings = await _unless_stopped(stop, config, changes)
        operator = None
        if settings is not None:
            from cotide_operator.assembly import Operator, Options

            operator = Operator(settings, Options(**options), informers=informers)
        elif informers is not None:
            await informers.end()
    except BaseException:
        if informers is not None:
            await informers.end()
        raise
    finally:
        sys.setswitchinterval(usual)
    try:
        if operator is not None:
            await operator.run(stop)
    finally:
        # A second signal must not kill the process while the interpreter ends: a clean stop has exit code 0.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


async def _unless_stopped(stop: asyncio.Event, config: Path | None, changes: dict[str, Any]) -> Settings | None:
    """Load, and return the settings; None after a signal to stop, which does not wait for libraries."""
    loading = asyncio.get_running_loop().run_in_executor(AbandonedCalls(), _load, config, changes)
    stopping = asyncio.create_task(stop.wait())
    either: set[asyncio.Future[Any]] = {loading, stopping}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if loading.done():
        return await loading
    loading.cancel()
    return None


def _follow(options: dict[str, Any]) -> Informers | None:
    """Begin to follow the cluster; None when it can't be found, which the operator reports after the configuration."""
    from cotide_core.errors import CotideError
    from cotide_kube.credentials import load_credentials
    from cotide_operator.cache.reflectors import Informers
    from cotide_operator.scheduling.garbage_passes import settle

    try:
        credentials = load_credentials(options["kubeconfig"], options["context"])
    except CotideError:
        return None
    informers = Informers(credentials, install_crds=options["install_crds"], listed=settle)
    if not options["install_crds"]:  # before anything is written the whole configuration is checked
        informers.begin()
    return informers


def _load(config: Path | None, changes: dict[str, Any]) -> Settings:
    """In a thread, while the first lists come: load everything that is heavy, and read the configuration."""
    import logging

    from cotide_core.errors import InputError
    from cotide_core.kernels.compiled import when_compiling
    from cotide_core.policies import build_policy
    from cotide_operator import assembly  # noqa: F401 - loaded, for the caller
    from cotide_operator.config.settings import engine_config, read_settings, with_changes

    settings = read_settings(config)
    models, ledger = changes["models"], changes["ledger"]
    settings = with_changes(
        settings,
        policy=changes["policy"],
        models={**settings.models.model_dump(), "directory": models} if models is not None else None,
        ledger={"directory": ledger} if ledger is not None else None,
    )
    for directory, field in (
        (settings.models.directory, "models.directory"),
        (settings.ledger.directory if settings.ledger is not None else None, "ledger.directory"),
    ):
        if directory is not None and directory.exists() and not directory.is_dir():
            raise InputError(f"{directory} is not a directory", field=field)
    when_compiling(lambda: logging.getLogger("cotide_operator").info("compiling kernels: once for this installation"))
    build_policy(engine_config(settings))  # loads its machine code, shared by all policies of a process
    return settings

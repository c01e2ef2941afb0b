"""`cotide apiserver`: the embedded Kubernetes API server, alone.

Prints its URL (and the kubeconfig's path) on stdout and runs until SIGINT or SIGTERM.
"""

from __future__ import annotations

import asyncio
import math
import signal
from pathlib import Path

import click

from cotide_cli.inputs.host_option import host


@click.command("apiserver")
@click.option("--host", default="127.0.0.1", callback=host, show_default=True, help="Address to listen on.")
@click.option("--port", default=8001, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 chooses one.")
@click.option("--data", type=click.Path(path_type=Path, dir_okay=False), help="SQLite file that keeps the objects.")
@click.option(
    "--kubeconfig-out", type=click.Path(path_type=Path, dir_okay=False), help="Write a kubeconfig for this server."
)
@click.option("--token", default="", envvar="COTIDE_APISERVER_TOKEN", help="Bearer token that clients must send.")
@click.option("--tls", is_flag=True, help="Serve https with a new self-signed authority.")
@click.option("--expose", is_flag=True, help="Allow an address that other machines reach (needs --token).")
@click.option(
    "--event-ttl", default=3600.0, show_default=True, type=click.FloatRange(1), help="Seconds that events are kept."
)
@click.option(
    "--bookmark-seconds",
    default=20.0,
    show_default=True,
    type=click.FloatRange(0.1, 60),
    help="Seconds between the bookmarks of a watch.",
)
@click.option("--fault-endpoint", is_flag=True, help="Let POST /_faults inject faults (for tests of clients).")
def command(
    *,
    host: str,
    port: int,
    data: Path | None,
    kubeconfig_out: Path | None,
    token: str,
    tls: bool,
    expose: bool,
    event_ttl: float,
    bookmark_seconds: float,
    fault_endpoint: bool,
) -> None:
    """Run the embedded Kubernetes API server.

    It has no scheduler, no kubelets and no controllers of Deployments or Jobs: new pods stay Pending until
    something binds them.
    """
    import gc

    import uvloop

    from cotide_core.errors import InputError
    from cotide_sim.apiserver.cluster import Settings
    from cotide_sim.apiserver.http.kubeconfig import write_kubeconfig
    from cotide_sim.apiserver.server import ApiServer

    # A range accepts "nan": every comparison with it is false.
    for value, option in ((event_ttl, "--event-ttl"), (bookmark_seconds, "--bookmark-seconds")):
        if not math.isfinite(value):
            raise InputError(f"{value:g} is not a number of seconds", field=option)
    server = ApiServer(
        host=host,
        port=port,
        token=token,
        tls=tls,
        data=data,
        settings=Settings(event_ttl_seconds=event_ttl, bookmark_seconds=bookmark_seconds),
        fault_endpoint=fault_endpoint,
        expose=expose,
    )

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with server:
            if kubeconfig_out is not None:
                write_kubeconfig(kubeconfig_out, server.kubeconfig())
                click.echo(f"kubeconfig {kubeconfig_out}")
            click.echo(server.url)
            await stop.wait()

    # Each request decodes an object and drops it again: at the usual threshold the collector would run every few
    # requests and find nothing, since objects are kept as bytes.
    gc.set_threshold(50_000, 20, 50)
    uvloop.run(serve())

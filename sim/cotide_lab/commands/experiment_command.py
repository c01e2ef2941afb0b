"""`cotide experiment NAME`: an experiment of a paper, its figures next to Cotide's.

Called by `main`. Each experiment is a module of `cotide_lab.commands.experiments` that holds a click command; it is
loaded only when it is called.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import Any, Final

import click

from cotide_cli.inputs.checked_types import of_data
from cotide_core.errors import InputError

EXPERIMENTS: Final = {
    "host-load": ("host_load", "command", "Forecast host load on real series, compared with common predictors."),
    "hierarchical": ("hierarchical", "command", "Schedule days of tasks with and without predicted slack."),
    "qpsm-waiting": ("qpsm_waiting", "command", "Total waiting of batch jobs under QPSM, FIFO and random order."),
    "services": ("services", "command", "The latency guard by service, from the first sample to the thousandth."),
    "joint": ("joint", "command", "All predictions at once, compared with each alone and static reserves."),
    "offline": ("offline", "command", "Approximation algorithms on jobs that are known beforehand."),
    "offline-readings": ("offline_readings", "command", "Readings of HYBRID's text against SVF-EF."),
    "easy-variants": ("easy_variants", "command", "EASY as simulators differ on it, compared with published figures."),
    "reliable-share": (
        "backfilling",
        "reliable_share_experiment",
        "The hybrid platform compared with backfilling and plans.",
    ),
    "platform-settings": (
        "backfilling",
        "platform_settings_experiment",
        "The hybrid platform's settings, chosen on all logs but the one they are judged on.",
    ),
    "first-share": (
        "backfilling",
        "first_share_experiment",
        "The first share of the processors of the hybrid platform.",
    ),
    "known-run-times": (
        "backfilling",
        "known_run_times_experiment",
        "The loss of the hybrid platform through unknown run times, in its order and in its lengths.",
    ),
    "forecast-accuracy": (
        "backfilling",
        "forecast_accuracy_experiment",
        "How much backfilling and plans depend on the accuracy of run times.",
    ),
    "consolidation": (
        "consolidation",
        "command",
        "Fewest nodes, least moved: KMNS, DMNS, DMAS, BFD, HSA and the optimum.",
    ),
    "consolidation-traces": ("consolidation_traces", "command", "Consolidation over days of recorded loads."),
    "run-times": ("run_times", "command", "Run-time forecasts on batch logs, made at each submission."),
    "capacity": (
        "capacity",
        "command",
        "Machines switched on and off by container-based provisioning and its baselines.",
    ),
    "phases": (
        "phases",
        "command",
        "Tasks scheduled by the needs of their phases, compared with task level and slots.",
    ),
    "placement": ("placement", "command", "Servers placed over data centres by predictive control and its baselines."),
}
"""Name: module of `cotide_lab.commands.experiments`, its click command, one line of help."""

RENAMED: Final = {
    "s1-forecast": "host-load",
    "s1-schedule": "hierarchical",
    "s2-table4": "qpsm-waiting",
    "s7-completion": "offline",
    "s7-readings": "offline-readings",
    "s8-platform": "reliable-share",
    "s8-sensitivity": "forecast-accuracy",
    "runtime-forecasts": "run-times",
}
"""Names of version 0.1: the command answers with today's name."""


class LazyExperiments(click.Group):
    """Loads an experiment's module only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the experiments."""
        del ctx
        return list(EXPERIMENTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one experiment; an earlier name is refused with a hint to today's name."""
        if cmd_name in RENAMED:
            raise click.UsageError(f"experiment {cmd_name!r} is called {RENAMED[cmd_name]!r} now", ctx)
        if cmd_name not in EXPERIMENTS:
            if ctx.resilient_parsing:
                return None
            near = get_close_matches(cmd_name, EXPERIMENTS, n=1)
            hint = f", did you mean {near[0]!r}?" if near else f"; there are {', '.join(EXPERIMENTS)}"
            raise click.UsageError(f"no experiment {cmd_name!r}{hint}", ctx)
        module, attribute, _ = EXPERIMENTS[cmd_name]
        command: click.Command = getattr(
            importlib.import_module(f"cotide_lab.commands.experiments.{module}"), attribute
        )
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run an experiment; an error in a file of ``--data`` also names the option."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            raise of_data(error, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the experiments from their one-liners, without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in EXPERIMENTS.items()])


@click.group("experiment", cls=LazyExperiments)
def command() -> None:
    """Run an experiment of one of the papers and print its figures next to Cotide's."""

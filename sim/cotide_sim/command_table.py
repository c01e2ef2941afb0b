"""Declarations of the commands that run parts of a cluster, or a whole one, on this machine.

Read by `command_registry`. Imports nothing else, so that help stays fast.
"""

from __future__ import annotations

from typing import Final

from cotide_cli.command_registry import ON_THIS_MACHINE, Command

DEMO: Final = Command(
    "cotide_sim.commands.demo_command", "Run the whole system on this machine and compare policies.", ON_THIS_MACHINE
)
APISERVER: Final = Command(
    "cotide_sim.commands.apiserver_command", "Run the embedded Kubernetes API server.", ON_THIS_MACHINE
)
NODES: Final = Command("cotide_sim.commands.nodes_command", "Run fake nodes on any API server.", ON_THIS_MACHINE)

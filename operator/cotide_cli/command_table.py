"""Declarations of the product's commands: all of them run on a cluster, or are about the program itself.

Read by `command_registry`. Imports nothing else, so that help stays fast.
"""

from __future__ import annotations

from typing import Final

from cotide_cli.command_registry import ON_A_CLUSTER, ON_THIS_MACHINE, Command

OPERATOR: Final = Command(
    "cotide_cli.commands.operator_command", "Run the operator, in or out of a cluster.", ON_A_CLUSTER
)
NODE_AGENT: Final = Command(
    "cotide_cli.commands.node_agent_command",
    "Hold batch pods of one node back while services need its cpu.",
    ON_A_CLUSTER,
)
EXPLAIN: Final = Command(
    "cotide_cli.commands.explain_command", "Explain why a pod or a Job is where it is, or why it waits.", ON_A_CLUSTER
)
WHATIF: Final = Command(
    "cotide_cli.commands.whatif_command",
    "Show what would happen without a node, with more nodes, more load or another policy.",
    ON_A_CLUSTER,
)
CONSOLIDATE: Final = Command(
    "cotide_cli.commands.consolidate_command",
    "Plan which nodes can go with the fewest moves, and carry it out on request.",
    ON_A_CLUSTER,
)
CAPACITY: Final = Command(
    "cotide_cli.provisioning.capacity_command",
    "Plan how many machines of which type are needed in the next hours.",
    ON_A_CLUSTER,
)
REPLICAS: Final = Command(
    "cotide_cli.provisioning.place_command",
    "Plan the replicas of a service over several clusters, and set them.",
    ON_A_CLUSTER,
)
REPORT: Final = Command(
    "cotide_cli.commands.report_command",
    "Report what shadow mode observed, and what Cotide would have done.",
    ON_A_CLUSTER,
)
COMPLETION: Final = Command(
    "cotide_cli.commands.completion_command",
    "Print the script that makes a shell complete this command.",
    ON_THIS_MACHINE,
)
VERSION: Final = Command(
    "cotide_cli.commands.version_command", "Print the versions of Cotide and of its libraries.", ON_THIS_MACHINE
)

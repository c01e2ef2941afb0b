"""Declarations of the research commands.

Read by `command_registry`. Imports nothing else, so that help stays fast.
"""

from __future__ import annotations

from typing import Final

from cotide_cli.command_registry import RESEARCH, Command

SIMULATE: Final = Command(
    "cotide_lab.commands.simulate_command", "Replay a batch log under scheduling policies, side by side.", RESEARCH
)
SWEEP: Final = Command(
    "cotide_lab.commands.sweep_command", "Replay many logs, policies and seeds in parallel, into one file.", RESEARCH
)
LAB: Final = Command(
    "cotide_lab.commands.lab_command", "Put every predictor on one fair track, and show the value of each.", RESEARCH
)
EXPERIMENT: Final = Command(
    "cotide_lab.commands.experiment_command", "Run an experiment of a paper, its figures next to Cotide's.", RESEARCH
)
TRAIN: Final = Command("cotide_lab.commands.train_command", "Train a predictor from files.", RESEARCH)
EVALUATE: Final = Command(
    "cotide_lab.evaluation.evaluate_command",
    "Score a predictor on held-out samples, compared with its baselines.",
    RESEARCH,
)
PROFILE: Final = Command(
    "cotide_lab.profile.profile_command",
    "Measure one service next to batch work: samples, a model, a page.",
    RESEARCH,
)
REPLAY: Final = Command(
    "cotide_lab.commands.replay_command", "Run a recorded ledger through the engine and compare.", RESEARCH
)

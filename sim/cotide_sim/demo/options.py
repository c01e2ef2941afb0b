"""The options of the demo, checked before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotide_cli.inputs.checked_types import check_output
from cotide_core.errors import InputError
from cotide_core.policies.catalogue import Runner, entry_of
from cotide_sim.workloads.scenarios import Scenario, usual_scenario

DEFAULT_POLICIES: Final = ("predictive", "qpsm", "fifo", "fifo-guarded", "random", "random-guarded")
SPEED: Final = 20.0
"""Chosen: simulated seconds for each second of the wall clock. Three times as fast, a binding's few
milliseconds would already be a visible part of a short job."""
MAX_SPEED: Final = 60.0
PAGE: Final = Path("cotide-demo.html")
LEAST_SECONDS: Final = 10.0
"""Chosen: with less wall-clock time a policy has placed next to nothing."""
MOST_SECONDS: Final = 604_800.0
"""Chosen: all arrivals are drawn before the first policy runs."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The demo's arguments; `checked` refuses invalid ones."""

    seconds: float
    nodes: int
    seed: int
    policies: tuple[str, ...]
    data: Path | None
    ledger: Path | None
    output: str
    page: Path = PAGE
    speed: float = SPEED
    named_scenario: Scenario | None = None

    @property
    def scenario(self) -> Scenario:
        """The kind of services: as named, otherwise the one that suits the policies."""
        return self.named_scenario or usual_scenario(self.policies)

    @property
    def simulated_seconds(self) -> float:
        """Length of each policy's run in simulated seconds."""
        return self.seconds * self.speed


def parse_policies(text: str) -> tuple[str, ...]:
    """Split ``qpsm,fifo`` and check each name.

    Raises
    ------
    InputError
        For an unknown, repeated or missing name.
    """
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise InputError("name at least one policy", field="--policies")
    names = tuple(entry_of(name, Runner.LIVE, field="--policies").name for name in names)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name!r} is named twice", field="--policies")
    return names


def checked(options: DemoOptions) -> DemoOptions:
    """Return the options when they can work.

    Raises
    ------
    InputError
        Naming the option that can't.
    """
    if not math.isfinite(options.seconds):
        raise InputError(f"{options.seconds:g} is not a number of seconds", field="--seconds")
    if options.seconds < LEAST_SECONDS:
        raise InputError(f"{options.seconds:g} is too short; {LEAST_SECONDS:g} is the least", field="--seconds")
    if options.seconds > MOST_SECONDS:
        raise InputError(
            f"{options.seconds:g} is too long; {MOST_SECONDS:,.0f}, a week, is the most", field="--seconds"
        )
    if not 1 <= options.nodes <= 2000:
        raise InputError(f"{options.nodes} nodes: choose 1 to 2000", field="--nodes")
    if not 1.0 <= options.speed <= MAX_SPEED:
        raise InputError(f"{options.speed:g} is not a speed of the demo's clock; 1 to {MAX_SPEED:g}", field="--speed")
    check_output(options.page, "--page")
    if options.data is not None and not options.data.is_dir():
        raise InputError(f"there is no directory {options.data}", field="--data")
    if options.ledger is not None and options.ledger.exists() and not options.ledger.is_dir():
        raise InputError(f"{options.ledger} is not a directory", field="--ledger")
    if options.ledger is not None:
        for policy in options.policies:
            if (options.ledger / policy / "ledger.jsonl").exists():
                raise InputError(
                    f"{options.ledger / policy} holds a ledger already; name another directory", field="--ledger"
                )
    return options

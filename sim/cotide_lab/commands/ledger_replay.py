"""Replays a ledger through a fresh engine and compares its decisions with the recorded ones.

Called by ``cotide replay`` and by tests. The engine is deterministic. Any difference therefore means that the ledger
was changed, that other models were given, or that the engine itself changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.errors import InputError, LedgerError
from cotide_core.forecasts import ModelCatalogue
from cotide_core.recording.codec import encode
from cotide_core.recording.ledger import LedgerEntry, as_json, read_ledger


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay.

    Attributes
    ----------
    cycles, instructions : how many were reproduced exactly.
    difference : the first difference, with its line, the expected and the actual instruction; None for no difference.
    begun : whether the file begins as a ledger does.
    """

    cycles: int
    instructions: int
    difference: str | None
    begun: bool = True


def replay(
    lines: Iterable[bytes], catalogue: ModelCatalogue, *, on_cycle: Callable[[int], None] | None = None
) -> ReplayResult:
    """Run the recorded events through a fresh engine, up to the first difference.

    Parameters
    ----------
    lines : of the ledger, each with its newline.
    catalogue : must hold the models that the ledger names.
    on_cycle : called after each reproduced cycle with the number of reproduced cycles.

    Raises
    ------
    ModelError
        When the catalogue lacks a model that the ledger names.
    """
    cycles = instructions = 0
    begun = False
    try:
        ledger = read_ledger(lines)
        begun = True
        scheduler = _engine(ledger.config, catalogue)
        for entry in ledger:
            made = [as_json(encode(item)) for item in scheduler.handle(entry.events, entry.now)]
            same, difference = _compare(entry, made)
            instructions += same
            if difference is not None:
                return ReplayResult(cycles, instructions, difference)
            cycles += 1
            if on_cycle is not None:
                on_cycle(cycles)
    except LedgerError as error:
        return ReplayResult(cycles, instructions, str(error), begun=begun)
    return ReplayResult(cycles, instructions, None)


def _engine(config: SchedulerConfig, catalogue: ModelCatalogue) -> Scheduler:
    try:
        return Scheduler(config, catalogue)
    except InputError as error:
        raise LedgerError(f"line 1: config: {error}") from error


def _compare(entry: LedgerEntry, made: list[str]) -> tuple[int, str | None]:
    for index, (expected, got) in enumerate(zip(entry.written, made, strict=False)):
        if expected != got:
            return index, f"line {entry.line}, instruction {index + 1}: expected {expected}, got {got}"
    same = min(len(entry.written), len(made))
    if len(entry.written) > same:
        return same, f"line {entry.line}, instruction {same + 1}: expected {entry.written[same]}, got none"
    if len(made) > same:
        return same, f"line {entry.line}, instruction {same + 1}: expected none, got {made[same]}"
    return same, None

"""The journal of a campaign: its plan, then one JSON line for each window, on disk before the next one begins.

Used by `campaign`, `passive` and `results`. Invariants: a killed campaign loses the current window only. An incomplete
last line is dropped; any other broken line is an error that names it.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from cotide_core.errors import InputError
from cotide_files.replacement import replace_file
from cotide_lab.predictors.profiling.design import Cell
from cotide_lab.predictors.profiling.windows import Window
from cotide_lab.profile.plan import Plan, differences

NAME: Final = "journal.jsonl"


class Journal:
    """The journal in a directory.

    Parameters
    ----------
    directory : made when it does not exist.
    plan : of the campaign to begin or to continue; None to read an existing one.

    Raises
    ------
    InputError
        When there is no journal to read, it can't be read or written, or it is of another campaign.
    """

    def __init__(self, directory: Path, plan: Plan | None) -> None:
        self.path = directory / NAME
        self.windows: list[Window] = []
        kept = self._read()
        if kept is None and plan is None:
            raise InputError("holds no campaign; begin one with `cotide profile active`", file=str(self.path))
        if kept is not None and plan is not None and (found := differences(kept, plan)):
            raise InputError(
                f"holds a campaign with another {', '.join(found)}; give another --out to start again",
                file=str(self.path),
            )
        self.plan: Plan = plan or kept  # type: ignore[assignment]  # one of the two is there: checked above
        if plan is not None:
            self._begin(directory)

    def add(self, window: Window) -> None:
        """Keep a window, on disk when this returns."""
        self._append(_line({"window": _document(window)}))
        self.windows.append(window)

    def _begin(self, directory: Path) -> None:
        """Write plan and windows again, by rename: this removes an incomplete end, and adds new jobs to the plan."""
        text = _line({"plan": self.plan.as_document()}) + "".join(
            _line({"window": _document(window)}) for window in self.windows
        )
        try:
            directory.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, text.encode())
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror or error}", file=str(self.path)) from error

    def _append(self, line: str) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror or error}", file=str(self.path)) from error

    def _read(self) -> Plan | None:
        """Read the journal; return its plan, None when there is no journal."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"can't be read: {error}", file=str(self.path)) from error
        lines = text.split("\n")[:-1]  # the text after the last line break is incomplete
        plan = None
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                if number == 1:
                    plan = Plan.of_document(entry["plan"])
                else:
                    self.windows.append(_window(entry["window"]))
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
                raise InputError(f"not an entry of a journal: {error!r}", file=str(self.path), line=number) from error
        return plan


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, allow_nan=False) + "\n"


def _document(window: Window) -> dict[str, Any]:
    """Return a window as JSON: unknown values are null."""
    found = asdict(window)
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in found.items()}


def _window(document: dict[str, Any]) -> Window:
    cell = Cell(float(document["cell"]["rate"]), tuple((str(n), int(c)) for n, c in document["cell"]["mix"]))
    numbers = {
        key: math.nan if document[key] is None else float(document[key])
        for key in (
            "p95_milliseconds",
            "achieved_rate",
            "seconds",
            "lag_milliseconds",
            "job_core_seconds",
            "at_seconds",
        )
    }
    # Older journals have none of these.
    numbers |= {
        key: math.nan if document.get(key) is None else float(document[key])
        for key in ("kernel_share", "reading_lag_milliseconds")
    }
    if not numbers["p95_milliseconds"] > 0 or not numbers["seconds"] > 0:
        raise ValueError("a p95 and a window's length are above 0")
    ended = tuple((str(name), float(seconds)) for name, seconds in document["job_seconds"])
    failed = tuple((str(name), int(count)) for name, count in document.get("failed_jobs", ()))
    return Window(
        cell=cell,
        requests=int(document["requests"]),
        cut=bool(document["cut"]),
        job_seconds=ended,
        failed_jobs=failed,
        **numbers,
    )

"""Measurements as JSON lines, each on disk before the next begins: a benchmark that was stopped goes on from there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Journal:
    """The plan and each measurement, as JSON lines; without a plan, to read what is there by its own.

    Raises
    ------
    SystemExit
        When what is there belongs to another plan, or is none.
    """

    def __init__(self, file: Path, plan: dict[str, Any] | None) -> None:
        self._file, self.plan = file, plan or {}
        self.lines: list[dict[str, Any]] = []
        if file.exists():
            self._read()
        elif plan is None:
            raise SystemExit(f"{file} is not there: nothing was measured yet")
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._write({"plan": plan})

    def _read(self) -> None:
        try:
            # A line that was being written when the power went is left out.
            text = self._file.read_text(encoding="utf-8")
            lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
            there = lines[0]["plan"]
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise SystemExit(f"{self._file} is no journal of this command: {error}") from error
        differs = sorted(key for key in {*there, *self.plan} if there.get(key) != self.plan.get(key))
        if self.plan and differs:
            raise SystemExit(f"{self._file} was measured with other {', '.join(differs)}: choose another --out")
        self.plan = there
        self.lines = lines[1:]
        with self._file.open("r+", encoding="utf-8") as sink:
            sink.truncate(len(text[: text.rfind("\n") + 1].encode()))

    def add(self, line: dict[str, Any]) -> None:
        self._write(line)
        self.lines.append(line)

    def lacks(self, **key: Any) -> bool:
        """Whether no measurement has these values."""
        return not any(all(line[name] == value for name, value in key.items()) for line in self.lines)

    def _write(self, line: dict[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8") as sink:
            sink.write(f"{json.dumps(line)}\n")
            sink.flush()
            os.fsync(sink.fileno())

"""Types of options with values that are checked before any work: seeds, processes, folders, outputs.

Used by the experiments, and by all commands that write a page or a plot. An hour of work is lost when its figure can't
be written, or when a library refuses its seed. Invariant: a refusal is one sentence that names the option.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from cotide_core.errors import InputError

MAX_SEED: Final = 2**31 - 1
"""scikit-learn takes seeds below 2^32, XGBoost below 2^63, and experiments count up from the first. Chosen."""
MAX_WORKERS: Final = 1024
"""Processes. Chosen: beyond the cores of any machine."""
MAX_REPEATS: Final = 10_000
"""Repetitions of a run. Chosen: the thesis has ten."""

SEED: Final = click.IntRange(0, MAX_SEED)
WORKERS: Final = click.IntRange(1, MAX_WORKERS)
REPEATS: Final = click.IntRange(1, MAX_REPEATS)
DATA: Final = "cotide.data"
"""Key of a context for the folder of traces, and the option that named it."""


class DataFolder(click.Path):
    """A folder of traces, which must exist."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return its path.

        Raises
        ------
        InputError
            When there is no such folder.
        """
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            found = path.is_dir()
        except OSError as error:
            raise InputError(_reason(error), file=_short(path), field=_name(param)) from error
        if not found:
            raise InputError("no such directory", file=_short(path), field=_name(param))
        if ctx is not None:
            ctx.meta[DATA] = (path, _name(param))
        return path


class OutputFile(click.Path):
    """A file that is written at the end; an existing one is replaced."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return its path.

        Raises
        ------
        InputError
            When it can't be written.
        """
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        check_output(path, _name(param))
        return path


def of_data(error: InputError, ctx: click.Context) -> InputError:
    """Return an error about a file of the folder of traces with the option that named it; other errors unchanged."""
    path, option = ctx.meta.get(DATA, (None, None))
    if path is None or error.file is None or error.field is not None or not Path(error.file).is_relative_to(path):
        return error
    return InputError(error.message, file=error.file, line=error.line, field=option)


def check_output(path: Path, option: str | None) -> None:
    """Refuse a file that can't be written; an existing file stays unchanged, and no new file remains.

    Raises
    ------
    InputError
        When it is a folder, its folder does not exist, or the system refuses it.
    """
    try:
        if path.is_dir():
            raise InputError(f"{_short(path)} is a folder; name a file", field=option)
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {_short(path.parent)}", field=option)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise InputError(f"{_short(path)} can't be written here; name another file", field=option)
        if path.exists():
            return
        # A writable folder may be full, or accept no files at all, like those of the kernel.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        path.unlink()
    except OSError as error:
        raise InputError(f"{_short(path)} can't be written: {_reason(error)}", field=option) from error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 200 else f"{text[:80]}... ({len(text)} characters)"


def _name(param: click.Parameter | None) -> str | None:
    return None if param is None else max(param.opts, key=len)

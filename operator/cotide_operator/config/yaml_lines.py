"""YAML text to plain data, with the line of every field for error messages.

`settings` calls it, and so do commands that read files of their own. PyYAML's own loader drops positions and silently
accepts a key that is written twice; both matter to users in search of a mistake. PyYAML's nodes have both.
`ruamel.yaml` would need the same walk for the lines, takes 12 ms where this takes 7 ms (the longest example), and reads
YAML 1.2 where Kubernetes' tools read 1.1.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any, Final

import yaml

from cotide_core.errors import InputError

Path = tuple[str | int, ...]

CONFIGURATION_CHARACTERS: Final = 256 * 1024
MAX_FLOWS: Final = 1000
"""Chosen: a configuration with brackets throughout has a hundred."""
MAX_FIELDS: Final = 20_000
"""Chosen: a configuration with every setting has two hundred."""


def read(file: FilePath) -> str:
    """Return the text of a file, up to the limit of `load`; a device has no end.

    Raises
    ------
    OSError, UnicodeDecodeError
        When it can't be read, or is no text.
    """
    with file.open(encoding="utf-8") as opened:
        return opened.read(CONFIGURATION_CHARACTERS + 1)


def load(text: str, file: str) -> tuple[Any, dict[Path, int]]:
    """Return the one document of a YAML text and the line (from 1) of each path in it.

    Raises
    ------
    InputError
        When the text is no YAML, holds several documents, or writes a key twice.
    """
    if len(text) > CONFIGURATION_CHARACTERS:
        raise InputError(f"has more than {CONFIGURATION_CHARACTERS} characters, which is the limit", file=file)
    if text.count("[") + text.count("{") > MAX_FLOWS:  # each takes the parser four levels of Python's stack
        raise InputError(f"has more than {MAX_FLOWS} lists and objects in brackets", file=file)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (RecursionError, ValueError, OverflowError) as error:  # nested too deep, or a number or date that is none
        raise InputError(f"is not YAML that can be read: {type(error).__name__}", file=file) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it can't be read"
        raise InputError(f"is not YAML: {problem}", file=file, line=mark.line + 1 if mark else None) from error
    lines: dict[Path, int] = {}
    if root is not None:
        try:
            _walk(root, (), lines, file)
        except RecursionError as error:
            raise InputError("is nested too deep, or names itself", file=file) from error
    return data, lines


def _walk(node: yaml.Node, path: Path, lines: dict[Path, int], file: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if len(lines) > MAX_FIELDS:
        raise InputError(f"has more than {MAX_FIELDS} fields, aliases written out", file=file)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            if here in lines:
                raise InputError("is written twice", file=file, line=key.start_mark.line + 1, field=written(here))
            lines[here] = key.start_mark.line + 1
            _walk(value, here, lines, file)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), lines, file)


def line_of(path: Path, lines: dict[Path, int]) -> int | None:
    """Return the line of a path, or of its closest written parent (a missing field has no line)."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return lines.get(())


def written(path: Path) -> str:
    """Format a path as a user writes it: ``models.retraining.minimumSamples`` or ``policies[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")

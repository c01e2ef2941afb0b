"""The base of every section of the configuration file, and the sentence about the first fault in one.

`settings` and its sections use it, and so does `cotide place` for its file. Keys are written in camel case; an unknown
key is an error, and so is a number that is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

SECTIONS_DISAGREE: Final = "sections_disagree"
"""Type of a fault that only the whole shows; its context contains the ``path`` of the faulty field."""
KEY: Final = "[key]"
"""Last part of pydantic's path of a fault in a mapping's key; the path without it is the entry's."""
_COLLECTIONS: Final = (tuple, list, dict, Mapping, Sequence)
Path = tuple[int | str, ...]


class Section(BaseModel):
    """A mapping of the configuration file; frozen once it is checked."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


def first_fault(error: ValidationError, root: type[BaseModel], also: Sequence[str] = ()) -> tuple[Path, str]:
    """Return the path of the first fault, and a sentence about it.

    An unknown key comes before a missing one: most often it is the missing one, misspelt.

    Parameters
    ----------
    root : the model of the checked data; it defines the known keys.
    also : keys that the file may have at its top in addition to those of `root`.
    """
    found: list[dict[str, Any]] = [dict(fault) for fault in error.errors(include_url=False)]
    around = {item["loc"][:length] for item in found for length in range(len(item["loc"]))}
    faults = [
        item for item in found if item["loc"] not in around
    ]  # pydantic reports a list as too short for a fault inside it
    fault = faults[0]
    if fault["type"] == "missing":
        fault = next((item for item in faults if item["type"] == "extra_forbidden"), fault)
    path: Path = fault["loc"]
    if path[-1:] == (KEY,):
        path = path[:-1]
    message: str = fault["msg"]
    if fault["type"] == SECTIONS_DISAGREE:
        path = tuple(fault["ctx"]["path"])
    elif fault["type"] == "extra_forbidden":
        known = [*_keys(root, path[:-1]), *(also if len(path) == 1 else ())]
        near = get_close_matches(str(path[-1]), known, n=1)
        message = "is not a setting" + (f"; there are {', '.join(known)}" if known else "")
        message += f"; did you mean {near[0]}?" if near else ""
    elif fault["type"] == "missing":
        message = "is missing"
    elif fault["type"] == "tuple_type":
        message = "is a list: write its items in brackets, or each on a line of its own"
    elif fault["type"] in ("model_type", "dict_type"):  # pydantic's message names classes of ours
        message = "is a section: write its settings below it, each on a line of its own"
    else:
        message = message.removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
    return path, message + (f" (and {len(faults) - 1} more)" if len(faults) > 1 else "")


def _keys(root: type[BaseModel], path: Path) -> list[str]:
    """Return the known keys of the section at a path."""
    section: Any = root
    inside_collection = False
    for part in path:
        if inside_collection:  # an index of a list, or a name that the user chose
            inside_collection = False
            continue
        found = [field.annotation for name, field in section.model_fields.items() if part in (name, field.alias)]
        sections = [pair for kind in found for pair in _sections(kind)]
        if not sections:
            return []
        section, inside_collection = sections[0]
    return [] if inside_collection else [field.alias or name for name, field in section.model_fields.items()]


def _sections(kind: Any) -> list[tuple[type[BaseModel], bool]]:
    """Return the sections in a type, and for each whether it stands in a list or a mapping."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [(kind, False)]
    collects = get_origin(kind) in _COLLECTIONS
    return [(section, collects or inside) for arg in get_args(kind) for section, inside in _sections(arg)]

"""What every section of the configuration file has in common, and the sentence about the first fault in one.

Used by `settings` and its sections, and by `cotide place` for its file. Keys are written in camel case; one that is not
there is an error, and so is a number that is no finite one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

SECTIONS_DISAGREE: Final = "sections_disagree"
"""Type of a fault that only the whole shows; its context names the ``path`` of the field that is to blame."""
KEY: Final = "[key]"
"""How pydantic ends the path of a fault in a key of a mapping; the path without it is the entry's."""
_COLLECTIONS: Final = (tuple, list, dict, Mapping, Sequence)
Path = tuple[int | str, ...]


class Section(BaseModel):
    """A mapping of the configuration file; frozen once it is checked."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, allow_inf_nan=False
    )


def first_fault(error: ValidationError, root: type[BaseModel], also: Sequence[str] = ()) -> tuple[Path, str]:
    """Return the path of the first fault, and a sentence about it.

    A key that does not exist comes before one that is missing: most often it is the missing one, misspelt.

    Parameters
    ----------
    root : what was checked; it tells which keys there are.
    also : keys that the file may have at its top besides those of `root`.
    """
    found: list[dict[str, Any]] = [dict(one) for one in error.errors(include_url=False)]
    around = {item["loc"][:length] for item in found for length in range(len(item["loc"]))}
    faults = [
        item for item in found if item["loc"] not in around
    ]  # a list is said to be too short for a fault inside it
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
    elif fault["type"] in ("model_type", "dict_type"):  # pydantic's words name classes of ours
        message = "is a section: write its settings below it, each on a line of its own"
    else:
        message = message.removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
    return path, message + (f" (and {len(faults) - 1} more)" if len(faults) > 1 else "")


def _keys(root: type[BaseModel], path: Path) -> list[str]:
    """Return what may be written in the section at a path."""
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
    """Return the sections that a type names, and of each whether it stands in a list or a mapping."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [(kind, False)]
    collects = get_origin(kind) in _COLLECTIONS
    return [(section, collects or inside) for arg in get_args(kind) for section, inside in _sections(arg)]

"""The gate for objects that are read as plain data: every field that we read of a passed object has its kind's type.

Called by the code that asks an API server for an object and reads it as a dictionary. This is the code of the commands,
and of the operator outside its reflectors (which decode by themselves, see `decoding`). After the gate no code needs to
check whether labels are labels, or an owner is an object. Invariant: an object passes without its nulls, or otherwise
as it came. Or it is one `OddObjectError`, which names the object and the field. Nothing else is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from cotide_core.errors import ClusterError
from cotide_core.limits import NAME_CHARACTERS
from cotide_kube.decoding import UNREADABLE, without_nulls

T = TypeVar("T")
Object = dict[str, Any]

FAULT_CHARACTERS: Final = 300
"""Longest description of a fault; chosen: the path of the deepest field of a pod takes 150."""


_FIELD: Final = re.compile(r"at `\$((?:\.\w+)+)")
"""Of a decoder's fault, the field up to the first list or map in it."""


class OddObjectError(ClusterError):
    """An object with a field that does not fit its kind: no API server sends one, or it is of another version."""


def typed(found: Any, kind: type[T], what: str) -> T:
    """Return an object as its type.

    Parameters
    ----------
    found : the object as plain data.
    kind : the struct of the fields that are read (see `objects`).
    what : the kind as a sentence names it, as ``pod``; the object's name follows it.

    Raises
    ------
    OddObjectError
        When a field is not of its type.
    """
    try:
        return msgspec.convert(without_nulls(found), kind)
    except UNREADABLE as error:
        fault = str(error)[:FAULT_CHARACTERS]
        raise OddObjectError(f"{named(found, what)} is not what an API server sends: {fault}") from error


def checked(found: Any, kind: type[Any], what: str) -> Object:
    """Return an object as plain data without its nulls, checked against its type; raises what `typed` raises."""
    typed(found, kind, what)
    plain: Object = without_nulls(found)
    return plain


def without_odd(found: Any, kind: type[Any], what: str) -> tuple[Object, list[str]]:
    """Return an object without its odd fields, and a sentence for each: for displays of the present state.

    Raises
    ------
    OddObjectError
        When it can't be read without them either.
    """
    odd: list[str] = []
    while True:
        try:
            return checked(found, kind, what), odd
        except OddObjectError as error:
            at = _FIELD.search(str(error.__cause__))
            found = None if at is None else _without(found, at[1].split(".")[1:])
            if found is None:
                raise
            odd.append(str(error))


def _without(found: Any, at: list[str]) -> Object | None:
    """Return a copy without a field, which is smaller; None where there is no such field."""
    if not isinstance(found, dict) or at[0] not in found:
        return None
    if len(at) == 1:
        return {key: value for key, value in found.items() if key != at[0]}
    inside = _without(found[at[0]], at[1:])
    return None if inside is None else {**found, at[0]: inside}


def all_checked(found: Iterable[Any], kind: type[Any], what: str) -> list[Object]:
    """Return objects as `checked` does, if all are needed; raises what `checked` raises, for the first odd one."""
    return [checked(item, kind, what) for item in found]


def those_checked(found: Iterable[Any], kind: type[Any], what: str) -> tuple[list[Object], list[str]]:
    """Return the objects that pass `checked`, and a sentence for each that does not."""
    good: list[Object] = []
    odd: list[str] = []
    for item in found:
        try:
            good.append(checked(item, kind, what))
        except OddObjectError as error:
            odd.append(f"left out: {error}")
    return good, odd


def named(found: Any, what: str) -> str:
    """Return an object's name for a sentence: ``pod shop/web``, if it has a name."""
    metadata = found.get("metadata") if isinstance(found, Mapping) else None
    parts = [metadata.get(part) for part in ("namespace", "name")] if isinstance(metadata, Mapping) else []
    name = "/".join(part[:NAME_CHARACTERS] for part in parts if isinstance(part, str) and part)
    return f"{what} {name}" if name else f"the answer about {what}"

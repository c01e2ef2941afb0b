"""The gate for objects that are read as plain data: what passes has, in every field that we read, what its kind has.

Called by whoever asks an API server for an object and reads it as a dictionary: the commands, and the operator where it
asks beside its reflectors (which decode by themselves, see `decoding`). Behind it nobody has to look whether labels are
labels, or an owner is an object. Invariant: an object passes without its nulls, else as it came, or is one
`OddObjectError`, whose sentence names it and the field; nothing else is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from cotide_core.errors import ClusterError
from cotide_core.limits import NAME_CHARACTERS
from cotide_kube.decoding import UNREADABLE, without_nulls

T = TypeVar("T")
Object = dict[str, Any]

FAULT_CHARACTERS: Final = 300
"""Of what a sentence says of a fault; chosen: the path of the deepest field of a pod takes 150."""


class OddObjectError(ClusterError):
    """An object in which a field is not what its kind has: no API server sends one, or it is of another version."""


def typed(found: Any, kind: type[T], what: str) -> T:
    """Return an object as its type.

    Parameters
    ----------
    found : what came, as plain data.
    kind : the struct of what is read of it (see `objects`).
    what : the kind as a sentence names it, as ``pod``; the name is put behind it.

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


def all_checked(found: Iterable[Any], kind: type[Any], what: str) -> list[Object]:
    """Return objects as `checked` does, of which none may be missing; raises what it raises, for the first odd one."""
    return [checked(one, kind, what) for one in found]


def those_checked(found: Iterable[Any], kind: type[Any], what: str) -> tuple[list[Object], list[str]]:
    """Return the objects that pass `checked`, and a sentence for each that does not."""
    good: list[Object] = []
    odd: list[str] = []
    for one in found:
        try:
            good.append(checked(one, kind, what))
        except OddObjectError as error:
            odd.append(f"left out: {error}")
    return good, odd


def named(found: Any, what: str) -> str:
    """Return what an object is called in a sentence: ``pod shop/web``, where it has a name."""
    metadata = found.get("metadata") if isinstance(found, Mapping) else None
    parts = [metadata.get(part) for part in ("namespace", "name")] if isinstance(metadata, Mapping) else []
    name = "/".join(part[:NAME_CHARACTERS] for part in parts if isinstance(part, str) and part)
    return f"{what} {name}" if name else f"the answer about {what}"

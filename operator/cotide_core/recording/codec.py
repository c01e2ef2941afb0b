"""Frozen dataclasses and named tuples to plain JSON values and back, exactly.

Used by `ledger` for events, instructions and the configuration. Built once per class from its type hints. Fields with
their default and fields that are not compared (``compare=False``) are left out. A number in a float field is written as
a float (Python's shortest form, which reads back to the same bits). The key ``kind`` distinguishes the members of a
union. Invariant: ``decode(encode(x)) == x`` for every event and instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeGuard, Union, get_args, get_origin, get_type_hints

from cotide_core.errors import LedgerError

Json = Any
"""A value of the json module: dict, list, str, int, float, bool or None."""
_Step = Callable[[Any], Any]


def encode(value: object) -> dict[str, Json]:
    """Return a frozen dataclass or named tuple as a JSON object, tagged with its ``kind``."""
    cls: type = type(value)
    encoded: dict[str, Json] = {"kind": cls.__name__}
    encoded.update(_record_encoder(cls)(value))
    return encoded


def decode(data: Json, kinds: dict[str, type]) -> Any:
    """Return the dataclass or named tuple of a tagged JSON object.

    Parameters
    ----------
    kinds : the allowed classes, by name.

    Raises
    ------
    LedgerError
        When the kind or a field is unknown, a field is missing, or a value has the wrong type.
    """
    if not isinstance(data, dict):
        raise LedgerError(f"expected an object, found {type(data).__name__}")
    kind = data.get("kind")
    if kind not in kinds:
        raise LedgerError(f"unknown kind {kind!r}")
    body = {key: value for key, value in data.items() if key != "kind"}
    return _record_decoder(kinds[kind])(body)


@cache
def _record_encoder(cls: type) -> Callable[[Any], dict[str, Json]]:
    hints = get_type_hints(cls)
    steps = [(name, default, _encoder(hints[name])) for name, default, _ in _fields(cls)]

    def run(value: Any) -> dict[str, Json]:
        out: dict[str, Json] = {}
        for name, default, step in steps:
            item = getattr(value, name)
            if item is default or item == default:
                continue
            out[name] = item if step is None else step(item)
        return out

    return run


@cache
def _record_decoder(cls: type) -> _Step:
    hints = get_type_hints(cls)
    steps = {name: _decoder(hints[name]) for name in hints}
    required = [name for name, _, must in _fields(cls) if must]

    def run(data: Any) -> Any:
        if not isinstance(data, dict):
            raise LedgerError(f"{cls.__name__}: expected an object, found {type(data).__name__}")
        for name in required:
            if name not in data:
                raise LedgerError(f"{cls.__name__}: the field {name} is missing")
        values = {}
        for name, item in data.items():
            step = steps.get(name)
            if step is None:
                raise LedgerError(f"{cls.__name__}: unknown field {name!r}")
            try:
                values[name] = step(item)
            except (TypeError, ValueError) as error:
                raise LedgerError(f"{cls.__name__}.{name}: {error}") from error
        return cls(**values)

    return run


def _is_record(hint: Any) -> TypeGuard[type]:
    return isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_field_defaults"))


def _fields(cls: Any) -> list[tuple[str, Any, bool]]:
    """Return name, default and whether there is no default, of each field that is compared."""
    if is_dataclass(cls):
        compared = [f for f in fields(cls) if f.compare]
        return [(f.name, f.default, f.default is MISSING and f.default_factory is MISSING) for f in compared]
    defaults: dict[str, Any] = cls._field_defaults
    return [(name, defaults.get(name, MISSING), name not in defaults) for name in cls._fields]


def _encoder(hint: Any) -> _Step | None:
    """Return the function that encodes a value of this type; None if it is JSON already."""
    optional = _optional(hint)
    if optional is not None:
        inner = _encoder(optional)
        return None if inner is None else lambda value: None if value is None else inner(value)
    if get_origin(hint) is tuple:
        inners = [_encoder(part) for part in get_args(hint) if part is not Ellipsis]
        if Ellipsis in get_args(hint):
            step = inners[0]
            return list if step is None else lambda value: [step(item) for item in value]
        if all(inner is None for inner in inners):
            return list
        return lambda value: [item if step is None else step(item) for item, step in zip(value, inners, strict=True)]
    if hint is float:
        return float
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return str
    if _is_record(hint):
        return _record_encoder(hint)
    return None


def _decoder(hint: Any) -> _Step:
    optional = _optional(hint)
    if optional is not None:
        inner = _decoder(optional)
        return lambda value: None if value is None else inner(value)
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if Ellipsis in parts:
            each = _decoder(parts[0])
            return lambda value: tuple(each(item) for item in _listed(value))
        inners = [_decoder(part) for part in parts]
        return lambda value: tuple(step(item) for item, step in zip(_listed(value), inners, strict=True))
    if hint is float:
        return lambda value: float(_checked(value, (int, float)))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    if _is_record(hint):
        return _record_decoder(hint)
    return lambda value: _checked(value, (hint,))


def _checked(value: Any, types: tuple[type, ...]) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError(f"{value!r} is not of type {types[-1].__name__}")
    return value


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {type(value).__name__}")
    return value


def _optional(hint: Any) -> Any:
    """Return X of ``X | None``, otherwise None."""
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not NoneType]
        return parts[0] if len(parts) == 1 else None
    return None

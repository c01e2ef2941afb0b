"""The one conversion module: Kubernetes quantities to integers and back.

Called by translation (raw objects to events), by the settings and by the fake nodes. Inside the engine every
resource is an integer: cpu in millicores, everything else in its base unit (bytes, pods, devices).

Source of the grammar: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

from cotide_core.errors import InputError
from cotide_core.limits import MAX_EXACT_INT, QUANTITY_CHARACTERS

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
RECLAIMED_CPU: Final = "cotide.dev/reclaimed-cpu"
RECLAIMED_MEMORY: Final = "cotide.dev/reclaimed-memory"

_QUANTITY = re.compile(
    r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+)|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E))?", re.ASCII
)
"""Each character has one reading only: the time is linear in the text."""
_MAX_EXPONENT: Final = 64
"""Beyond it, a number of `limits.QUANTITY_CHARACTERS` digits exceeds `limits.MAX_EXACT_INT` or is below a nano-unit."""
_SUFFIX: Final[dict[str, Decimal]] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip


_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_PLAIN_CHARACTERS: Final = 18
"""Integers of this length parse in constant time, for any number of digits."""
_BEYOND: Final = "{} is beyond 2^53, the largest amount that is counted exactly"


class QuantityBeyond(InputError):
    """A readable quantity that exceeds every existing amount."""


def parse_quantity(text: str | int | float) -> Decimal:
    """Return a Kubernetes quantity as an exact number of base units (cores, bytes, pieces).

    Raises
    ------
    InputError
        When the text is no quantity, is longer than `limits.QUANTITY_CHARACTERS`, or exceeds every existing amount. The
        time is linear in the text.
    """
    if isinstance(text, str):
        if len(text) > QUANTITY_CHARACTERS:
            raise InputError(f"{text[:16]!r}... has {len(text)} characters, a quantity at most {QUANTITY_CHARACTERS}")
        return _parsed(text)
    if not isinstance(text, int | float):
        raise InputError(f"{str(text)[:40]} is not a quantity")
    if isinstance(text, int) and abs(text) > MAX_EXACT_INT:
        raise QuantityBeyond(_BEYOND.format("an amount"))
    return _parsed(str(text))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or not (match[2] or match[3]):
        raise InputError(f"{text!r} is not a quantity (write for example 250m, 2, 512Mi or 1.5G)")
    sign, whole, part, exponent, suffix = match.groups()
    number = Decimal(f"{sign}{whole or '0'}.{part or '0'}")
    if exponent is not None:
        power = int(exponent)
        if power > _MAX_EXPONENT and number:
            raise QuantityBeyond(_BEYOND.format(repr(text)))
        number = number.scaleb(max(-2 * _MAX_EXPONENT, min(power, _MAX_EXPONENT)))
    return number * _SUFFIX[suffix or ""]


def resource_amount(resource: str, quantity: str | int | float) -> int:
    """Return a quantity as the engine's integer: millicores for cpu, base units for the rest, rounded up.

    ``cotide.dev/reclaimed-cpu`` is counted in millicores by its own definition. An extended resource must be a whole
    number, so it is published as millicores and not multiplied here.

    Raises
    ------
    InputError
        When it is no quantity, or beyond `limits.MAX_EXACT_INT`.
    """
    plain = _plain(resource, quantity)
    if plain is not None:
        return plain
    value = parse_quantity(quantity)
    if resource == CPU:
        value *= 1000
    if not -MAX_EXACT_INT <= value <= MAX_EXACT_INT:
        raise QuantityBeyond(_BEYOND.format(repr(quantity)))
    return int(value.to_integral_value(rounding=ROUND_CEILING))


def _plain(resource: str, quantity: str | int | float) -> int | None:
    """Return the amount of most quantities, ``2``, ``250m`` of cpu, ``512Mi``, in less time; None for others."""
    if not isinstance(quantity, str) or len(quantity) > _PLAIN_CHARACTERS or not quantity.isascii():
        return None
    if quantity.isdecimal():
        factor, digits = (1000 if resource == CPU else 1), quantity
    elif resource == CPU:
        factor, digits = 1, quantity[:-1]
        if quantity[-1:] != "m":
            return None
    else:
        factor, digits = _BINARY.get(quantity[-2:], 0), quantity[:-2]
    if not factor or not digits.isdecimal():
        return None
    amount = int(digits) * factor
    return amount if amount <= MAX_EXACT_INT else None


def bounded_amount(resource: str, quantity: str | int | float) -> int:
    """Return an amount that is already held or offered, clamped to 0 ... `limits.MAX_EXACT_INT`.

    Raises
    ------
    InputError
        When it is no quantity.
    """
    plain = _plain(resource, quantity)
    if plain is not None:
        return plain
    try:
        value = parse_quantity(quantity)
    except QuantityBeyond:
        return MAX_EXACT_INT if not str(quantity).lstrip().startswith("-") else 0
    if resource == CPU:
        value *= 1000
    return MAX_EXACT_INT if value > MAX_EXACT_INT else max(0, int(value.to_integral_value(rounding=ROUND_CEILING)))


def format_amount(resource: str, amount: int) -> str:
    """Write an engine integer as the shortest exact quantity a user would type (``1500m``, ``2Gi``)."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in (MEMORY, EPHEMERAL_STORAGE) and amount:
        for suffix in ("Ti", "Gi", "Mi", "Ki"):
            step = int(_SUFFIX[suffix])
            if amount % step == 0:
                return f"{amount // step}{suffix}"
    return str(amount)


def format_seconds(seconds: float) -> str:
    """Write a duration in its largest unit and the next one (``2h 5m``, ``45s``, ``1d 3h``, ``17h`` and 51 s)."""
    whole = round(max(0.0, seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (secs, "s")]
    first = next((index for index, (value, _) in enumerate(parts) if value), len(parts) - 1)
    shown = [f"{value}{unit}" for value, unit in parts[first : first + 2] if value]
    return " ".join(shown) or "0s"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number and what it counts: ``1 pod``, ``0 pods``, ``28,481 jobs``; the plural takes an s by default."""
    return f"{number:,} {noun_of(number, noun, plural)}"


def noun_of(number: int, noun: str, plural: str | None = None) -> str:
    """Return the noun for a number: ``pod`` for 1, ``pods`` for all others."""
    return noun if number == 1 else plural or noun + "s"

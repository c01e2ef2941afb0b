"""The one conversion module: Kubernetes quantities to integers and back.

Called by translation (raw objects to events), by the settings and by the fake nodes. Inside the engine every
resource is an integer: cpu in millicores, everything else in its base unit (bytes, pods, devices).

Source of the grammar: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, Overflow
from functools import lru_cache
from typing import Final

from cotide_core.errors import InputError

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
RECLAIMED_CPU: Final = "cotide.dev/reclaimed-cpu"
RECLAIMED_MEMORY: Final = "cotide.dev/reclaimed-memory"

_QUANTITY = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E))?$")
_SUFFIX: Final[dict[str, Decimal]] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip


@lru_cache(maxsize=4096)
def parse_quantity(text: str | int | float) -> Decimal:
    """Return a Kubernetes quantity as an exact number of base units (cores, bytes, pieces).

    Raises
    ------
    InputError
        When the text is no quantity.
    """
    match = _QUANTITY.match(str(text).strip())
    if match is None:
        raise InputError(f"{text!r} is not a quantity (write for example 250m, 2, 512Mi or 1.5G)")
    number, exponent, suffix = match.groups()
    try:
        return Decimal(number + (exponent or "")) * _SUFFIX[suffix or ""]
    except Overflow:
        raise InputError(f"{text!r} is beyond any amount that there is") from None


@lru_cache(maxsize=4096)
def resource_amount(resource: str, quantity: str | int | float) -> int:
    """Return a quantity as the engine's integer: millicores for cpu, base units for the rest, rounded up.

    ``cotide.dev/reclaimed-cpu`` is counted in millicores by its own definition: an extended resource must
    be a whole number, so it is published as millicores and never multiplied here.
    """
    value = parse_quantity(quantity)
    if resource == CPU:
        value *= 1000
    return int(value.to_integral_value(rounding=ROUND_CEILING))


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
    """Write a duration in the two largest units that matter (``2h 5m``, ``45s``, ``1d 3h``)."""
    whole = round(max(0.0, seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (secs, "s")]
    shown = [f"{value}{unit}" for value, unit in parts if value][:2]
    return " ".join(shown) or "0s"

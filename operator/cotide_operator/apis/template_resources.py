"""Quantities of a pod template: their schema in the CRDs, and the same check for objects of older definitions.

`types` uses it. The template keeps all fields of the core API, so that these are separate from its model. Its content
goes into the pods, and the API server would refuse such a pod long after it accepted the Job or Workload.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic.config import JsonDict

from cotide_core.errors import InputError

QUANTITY: Final = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"
"""A quantity that is not negative. Source: k8s.io/apimachinery, ``resource.Quantity``."""
_WRITTEN: Final = re.compile(QUANTITY, re.ASCII)
WRITTEN_CHARACTERS: Final = 60
"""Characters of an invalid quantity in a message; chosen."""
_CONTAINERS: Final = ("containers", "initContainers")
_KINDS: Final = ("requests", "limits")
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"


def _object(description: str, **properties: Any) -> JsonDict:
    return {"type": "object", "description": description, _OPEN: True, "properties": properties}


_AMOUNTS: Final[JsonDict] = {
    "type": "object",
    "description": "Amounts by resource: 500m, 2Gi.",
    "nullable": True,
    # Without a type: the core API takes 0.5 as well as "500m" and 1, which is neither an integer nor a string.
    "additionalProperties": {_OPEN: True, "pattern": QUANTITY, "minimum": 0},
}
_RESOURCES: Final[JsonDict] = {
    **_object("Requests and limits, each a quantity.", **dict.fromkeys(_KINDS, _AMOUNTS)),
    "nullable": True,
}


def of_a_container(schema: JsonDict) -> None:
    """Add the schema of a container's resources."""
    schema[_OPEN] = True
    schema["properties"] = {**_properties(schema), "resources": _RESOURCES}


def of_a_pod(schema: JsonDict) -> None:
    """Add the schema of a pod's own resources and of those of its init containers."""
    schema[_OPEN] = True
    schema["properties"] = {
        **_properties(schema),
        "resources": _RESOURCES,
        "initContainers": {
            "type": "array",
            "nullable": True,
            "items": _object("As in the core API.", resources=_RESOURCES),
            "description": "As in the core API.",
        },
    }


def _properties(schema: JsonDict) -> JsonDict:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def check_quantities(spec: Mapping[str, Any]) -> None:
    """Refuse a pod spec with an invalid quantity.

    Raises
    ------
    InputError
        Names the field below the spec.
    """
    for path, resources in _resources_of(spec):
        for kind in _KINDS:
            amounts = resources.get(kind)
            for name, amount in amounts.items() if isinstance(amounts, Mapping) else ():
                if _WRITTEN.fullmatch(str(amount)) is None or isinstance(amount, bool):
                    written = str(amount)[:WRITTEN_CHARACTERS]
                    raise InputError(f"{written!r} is no quantity, as 500m or 2Gi", field=f"{path}.{kind}.{name}")


def _resources_of(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    found = [("resources", spec.get("resources"))]
    for kind in _CONTAINERS:
        containers = spec.get(kind)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            found.append(
                (f"{kind}[{index}].resources", container.get("resources") if isinstance(container, Mapping) else None)
            )
    return ((path, resources) for path, resources in found if isinstance(resources, Mapping))

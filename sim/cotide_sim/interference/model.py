"""How pods on one machine slow each other: the seam between the physics and its two models.

Called by `machine.MachinePark` (fake nodes, virtual or live) and by `workloads.profiling`. Position in the flow: last
step, a simulated node turns what was bound on it into measured latencies and finish times. Invariant: a model is
pure and deterministic; it never falls in rate, counts, input bytes or pressure; noise is the machine's business.

Two models stand behind the protocol: `GeneratedInterference`, a documented closed formula that needs no data, and
`MeasuredInterference`, fitted to measured co-location tables. Both write themselves to JSON exactly.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from cotide_core.errors import InputError
from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats
from cotide_sim.interference.generated import GeneratedInterference
from cotide_sim.interference.measured import MeasuredInterference

__all__ = ["GeneratedInterference", "Interference", "MeasuredInterference", "interference_from_json"]


@runtime_checkable
class Interference(Protocol):
    """What happens to pods that share a machine."""

    @property
    def types(self) -> tuple[str, ...]:
        """The job types that the model knows, sorted; any other counts as the worst of them."""
        ...

    @property
    def saturation_requests_per_second(self) -> float:
        """The rate at which one core of an online pod is fully used."""
        ...

    def p95_milliseconds(self, mixes: MixBatch) -> Floats:
        """Return (n,) p95 latencies in milliseconds, one for each (node, online pod) row; limits are not read."""
        ...

    def slowdown(self, types: Sequence[str], requests_per_second: Floats, cpu_pressure: Floats) -> Floats:
        """Return (n,) factors >= 1 for a job that shares its core with a service.

        Parameters
        ----------
        types : n type names.
        requests_per_second : (n,) rate of the service on the same core; 0 for a job on a core of its own.
        cpu_pressure : (n,) millicores requested by the *other* batch and gratis pods, over allocatable cpu.
        """
        ...

    def isolated_seconds(self, types: Sequence[str], input_bytes: Floats) -> Floats:
        """Return (n,) seconds that each job takes on an idle machine; nan for a type that is not known."""
        ...

    def to_json(self) -> str:
        """Return the model as JSON text that `interference_from_json` reads back exactly."""
        ...


def interference_from_json(text: str, *, file: str | None = None) -> Interference:
    """Read either model back.

    Raises
    ------
    InputError
        When the text is no JSON object or names no known kind of model.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", file=file) from None
    kind = document.get("kind") if isinstance(document, dict) else None
    try:
        if kind == GeneratedInterference.KIND:
            return GeneratedInterference.from_json(text)
        if kind == MeasuredInterference.KIND:
            return MeasuredInterference.from_json(text)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"is not a complete interference model: {error}", file=file) from None
    raise InputError(
        f"kind {kind!r} is no interference model (known: {GeneratedInterference.KIND}, {MeasuredInterference.KIND})",
        file=file,
    )

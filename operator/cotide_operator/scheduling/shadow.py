"""What stands in shadow where decisions are carried out: nothing is.

Used by `assembly` under ``mode: shadow``. The engine's binds stay assumed until the watch shows where the cluster's own
scheduler put the pod. Invariant: nothing here reaches the API server; the client, which only reads there, would refuse.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

from cotide_core.instructions import Bind, Evict, Instruction
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher, Arguments
from cotide_operator.scheduling.binder import Binder, BindNote


class ShadowBinder(Binder):
    """Takes decisions and drops them."""

    def carry_out(self, instructions: Sequence[Instruction], notes: Mapping[str, BindNote]) -> None:
        """Do nothing."""
        del instructions, notes

    def submit(self, instruction: Bind | Evict, note: BindNote | None = None) -> None:
        """Do nothing."""
        del instruction, note


class ShadowDispatcher(ApiDispatcher):
    """Takes writes that can wait and drops them."""

    def submit(
        self,
        key: Hashable,
        work: Callable[[*Arguments], Awaitable[None]],
        namespace: str,
        *arguments: *Arguments,
        urgent: bool = False,
    ) -> bool:
        """Do nothing, as if it were done."""
        del key, work, namespace, arguments, urgent
        return True

"""The stand-ins that carry out no decision in shadow mode.

`assembly` uses them under ``mode: shadow``. The engine's binds stay assumed until the watch shows the node that the
cluster's own scheduler chose. Invariant: nothing here reaches the API server; the client is read-only there, and would
refuse.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

from cotide_core.instructions import Bind, Evict, Instruction
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher, Arguments
from cotide_operator.scheduling.binder import Binder, BindNote


class ShadowBinder(Binder):
    """Accepts decisions and drops them."""

    def carry_out(self, instructions: Sequence[Instruction], notes: Mapping[str, BindNote]) -> None:
        """Do nothing."""
        del instructions, notes

    def submit(self, instruction: Bind | Evict, note: BindNote | None = None) -> None:
        """Do nothing."""
        del instruction, note


class ShadowDispatcher(ApiDispatcher):
    """Accepts low-priority writes and drops them."""

    def submit(
        self,
        key: Hashable,
        work: Callable[[*Arguments], Awaitable[None]],
        namespace: str,
        *arguments: *Arguments,
        urgent: bool = False,
    ) -> bool:
        """Do nothing, and report success."""
        del key, work, namespace, arguments, urgent
        return True

"""Options that select where cells run.

Used by `cotide sweep` and `cotide lab run`, as the argument ``execution``.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_cli.inputs.checked_types import WORKERS
from cotide_cli.option_groups import grouped, option_group
from cotide_core.errors import InputError


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """Where cells run, and which of them again.

    Attributes
    ----------
    workers : processes of this machine; None for one for each core.
    dask : address of a Dask scheduler; its workers run the cells instead.
    """

    workers: int | None
    dask: str | None
    retry_failed: bool

    def check(self) -> None:
        """Refuse both processes of this machine and a cluster.

        Raises
        ------
        InputError
            When both were named.
        """
        if self.dask is not None and self.workers is not None:
            raise InputError("is for processes of this machine; a Dask cluster has its own workers", field="--workers")


execution_options = option_group(
    "Execution",
    "execution",
    ExecutionOptions,
    grouped("--workers", type=WORKERS, help="Processes; default: one for each core."),
    grouped("--dask", metavar="ADDRESS", help="Run on the Dask cluster of this scheduler, like tcp://10.0.0.1:8786."),
    grouped("--retry-failed", is_flag=True, help="Run cells again that failed before."),
)

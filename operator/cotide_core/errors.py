"""The error tree of Cotide: shallow, and only for faults that a caller can't treat as a value.

::

    CotideError                  one sentence for a user; the command line prints it without a traceback
    |-- InputError               the user's file, field or argument is wrong (exit 2)
    |-- ModelError               a model file is missing, broken or does not fit its manifest (exit 1)
    |-- LedgerError              a ledger can't be read, or does not reproduce (exit 1)
    `-- ClusterError             the API server is unreachable or refuses us (exit 1)

Expected refusals (a pod that does not fit, a binding answered by 409) are values, not exceptions.
"""

from __future__ import annotations


class CotideError(Exception):
    """The base of all errors that are meant for a user to read."""


class InputError(CotideError):
    """The user's input is wrong; names the field, its file and line.

    Parameters
    ----------
    message : str
        What is wrong and what would be right, in one sentence.
    file : str, optional
        The file that holds the fault.
    line : int, optional
        Its line, from 1.
    field : str, optional
        The path of the field, as a user writes it (``spec.qos.latencyP95Milliseconds``).
    """

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, field: str | None = None
    ) -> None:
        self.message, self.file, self.line, self.field = message, file, line, field
        location = ":".join(str(part) for part in (file, line) if part is not None)
        parts = [part for part in (location, field, message) if part]
        super().__init__(": ".join(parts))


class ModelError(CotideError):
    """A model file is missing, broken or does not fit its manifest."""


class LedgerError(CotideError):
    """A ledger can't be read, or its replay differs."""


class ClusterError(CotideError):
    """The API server can't be reached, or forbids a necessary operation."""

"""A policy from a user's own file: its arguments, its answers, and the report of its faults.

Called by `cotide simulate` and, through its sweeps, on worker processes and other machines: a `PolicySource` is what
travels there. Invariants: a policy never sees the run time of a job that has not ended. A fault in the user's file is
an `InputError` that names this file and its line.

The protocol::

    def choose(queue, machine):
        '''Called once at each moment at which jobs were submitted, ended, or exceeded their forecast.'''
        return [0]      # indices in the queue of the jobs to start now, in this order

or a class with a method ``choose`` and optional methods ``submitted(job)`` and ``finished(job, run)``. One object of it
serves a whole replay. `Queue`, `Machine` and `Job` describe the arguments. A job that is chosen must fit the free
processors when its turn comes; everything else is the policy's affair.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_core.policies.catalogue import BY_NAME

FUNCTION: Final = "choose"
CLASS: Final = "Policy"


@dataclass(frozen=True, slots=True)
class Queue:
    """The waiting jobs in order of submission; each array is (n,) int64, a copy that the policy may change.

    Attributes
    ----------
    job : the log's job numbers.
    submit, request : seconds.
    forecast : seconds, the run time by ``--runtime``.
    demand : processors.
    user : the log's user numbers, -1 where unknown.
    """

    job: Integers
    submit: Integers
    demand: Integers
    request: Integers
    forecast: Integers
    user: Integers

    def __len__(self) -> int:
        return len(self.job)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and what runs on it; each array is (m,) int64, by planned end.

    Attributes
    ----------
    now : seconds since the log's start.
    processors, free : of the machine, and those that no job uses now.
    job, demand, start : of the running jobs.
    planned_end : start and forecast, corrected where a job has exceeded it.
    """

    now: int
    processors: int
    free: int
    job: Integers
    demand: Integers
    start: Integers
    planned_end: Integers


@dataclass(frozen=True, slots=True)
class Job:
    """One job, as at its submission."""

    number: int
    submit: int
    demand: int
    request: int
    forecast: int
    user: int


class UserPolicy:
    """A loaded policy.

    Parameters
    ----------
    name : in tables.
    file : where it is written.
    made : what the file defines: a function, or a class without required arguments.
    """

    def __init__(self, name: str, file: Path, made: Any) -> None:
        self.name, self.file, self._made = name, file, made
        self._object: Any = None

    @property
    def summary(self) -> str:
        """Return the first line of the policy's docstring, or where it is from."""
        text = (self._made.__doc__ or "").strip().splitlines()
        return text[0] if text else f"written in {self.file.name}"

    @property
    def defined(self) -> Any:
        """Return the function or class that the file defines."""
        return self._made

    def begin(self) -> None:
        """Make the object that serves one replay."""
        self._object = self.call(self._made) if isinstance(self._made, type) else None
        if self._object is not None and not callable(getattr(self._object, FUNCTION, None)):
            raise InputError(
                f"class {self._made.__name__} has no method {FUNCTION}(queue, machine)", file=str(self.file)
            )

    def choose(self, queue: Queue, machine: Machine) -> list[int]:
        """Return the indices that the policy chose, checked to be in the queue.

        Raises
        ------
        InputError
            When the policy fails, or its answer is not a list of indices in the queue.
        """
        answer = self.call(self._made if self._object is None else self._object.choose, queue, machine)
        indices = self._indices(answer, machine.now)
        for index in indices:
            if not 0 <= index < len(queue):
                raise self.refused(f"chose index {index} at {machine.now} s in a queue of {len(queue)}")
        if len(set(indices)) != len(indices):
            raise self.refused(f"chose an index twice at {machine.now} s: {indices}")
        return indices

    def emit(self, hook: str, *arguments: object) -> None:
        """Call ``submitted`` or ``finished`` where the policy has it."""
        method = getattr(self._object, hook, None)
        if method is not None:
            self.call(method, *arguments)

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call the user's code; what it raises becomes one line that names the line."""
        try:
            return function(*arguments)
        except Exception as error:  # whatever the user's code raises is theirs to read, in one line
            raise _as_input_error(error, self.file) from error

    def refused(self, reason: str) -> InputError:
        """Return the error for an answer that can't be carried out."""
        return InputError(f"{self.name} {reason}", file=str(self.file))

    def _indices(self, answer: Any, now: int) -> list[int]:
        if isinstance(answer, int | np.integer) and not isinstance(answer, bool):
            return [int(answer)]
        if answer is None:
            return []
        if not isinstance(answer, Iterable):
            raise self.refused(
                f"answered {type(answer).__name__} at {now} s; a list of indices in the queue was expected"
            )
        indices = list(answer)
        for index in indices:
            if not isinstance(index, int | np.integer) or isinstance(index, bool):
                raise self.refused(f"answered {index!r} at {now} s, which is no index in the queue")
        return [int(index) for index in indices]


@dataclass(frozen=True, slots=True)
class PolicySource:
    """A policy as it is written: all that another process needs to load it, without the file.

    Attributes
    ----------
    name : in tables.
    file : where it is written, as given.
    defined : the name of the function or class; None for ``Policy``, else ``choose``.
    text : of the whole file.
    """

    name: str
    file: str
    defined: str | None
    text: str

    @property
    def sha256(self) -> str:
        """Return the checksum of the file's content."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def load_policy(given: str) -> UserPolicy:
    """Load ``FILE`` or ``FILE:NAME``.

    Without a name the file's class ``Policy`` is taken, else its function ``choose``.

    Raises
    ------
    InputError
        When the file can't be read or run, or defines no such policy.
    """
    return policy_of_source(read_policy(given))


def read_policy(given: str) -> PolicySource:
    """Read ``FILE`` or ``FILE:NAME`` without running it.

    Raises
    ------
    InputError
        When the file can't be read.
    """
    path, name = _parts(given)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't be read: {getattr(error, 'strerror', None) or error}", file=str(path)) from error
    # A file may be called as one of our policies is; its schedules must not be held to that policy's promises.
    stem = path.name if path.stem in BY_NAME else path.stem
    return PolicySource(f"{stem}:{name}" if name else stem, str(path), name or None, text)


def policy_of_source(source: PolicySource) -> UserPolicy:
    """Run the text of a file and return the policy that it defines.

    Raises
    ------
    InputError
        When the text can't be run, or defines no such policy.
    """
    path, name = Path(source.file), source.defined
    code = _compiled(source.text, path)
    # A module of its own, findable by name: dataclasses and pickle look their classes' module up.
    module = ModuleType(f"policy_from_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    scope = vars(module)
    try:
        exec(code, scope)  # noqa: S102  the user asked for their own code to be run
    except Exception as error:  # as in `UserPolicy.call`
        raise _as_input_error(error, path) from error
    found = scope.get(name) if name else scope.get(CLASS, scope.get(FUNCTION))
    if not callable(found):
        wanted = repr(name) if name else f"class {CLASS} and no function {FUNCTION}"
        raise InputError(f"defines no {wanted}", file=str(path))
    return UserPolicy(source.name, path, found)


def is_policy_file(given: str) -> bool:
    """Return whether a policy's name is the path of a file: ``my_policy.py`` or ``./my_policy.py:NAME``."""
    return given.endswith(".py") or ".py:" in given


def _parts(given: str) -> tuple[Path, str]:
    head, colon, tail = given.rpartition(":")
    return (Path(head), tail) if colon and head.endswith(".py") else (Path(given), "")


def _compiled(text: str, path: Path) -> CodeType:
    # So that a traceback, and with it a line of the user's, can be found.
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    try:
        return compile(text, str(path), "exec")
    except SyntaxError as error:
        raise InputError(f"{type(error).__name__}: {error.msg}", file=str(path), line=error.lineno) from error
    except ValueError as error:
        raise InputError(f"is no Python: {error}", file=str(path)) from error


def _as_input_error(error: Exception, file: Path) -> InputError:
    """Return an error of the user's code as one line at the innermost line of their file."""
    if isinstance(error, InputError):
        return error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    words = " ".join(f"{type(error).__name__}: {error}".split())
    if not frames:
        return InputError(words, file=str(file))
    return InputError(f"in {frames[-1].name}: {words}", file=str(file), line=frames[-1].lineno)

"""Where an operator may be killed: each await point of a path, one by one.

Used inside the operator's process (`operator_child`). A coroutine of the path is driven by hand, so that each of its
suspensions is seen, however deep in a library it is. Two points belong to each: right when it suspends (what was
written has left), and right before it goes on (the world has moved, the operator does not know). The points of one
process are numbered from 1; at the chosen one the process ends by SIGKILL.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final

PATHS: Final = ("bind", "evict", "job", "note", "lease", "drain")
"""What is walked through point by point: a pod bound, one evicted, a look at a Job, a note on a pod, the lease, a node
drained. Of a machine ordered or switched off ("provision"), which has too many for a walk, and of a pod resized or told
of its phase ("resize") seeds draw some."""


class KillPoints:
    """Counts the points of one path and ends the process at one of them; 0 at none."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.passed = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def awaited(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return a coroutine function with a point before it, at each of its suspensions, and after it."""

        @functools.wraps(function)
        async def walked(*arguments: Any, **options: Any) -> Any:
            self.point()
            try:
                return await _Walked(function(*arguments, **options), self)
            finally:
                self.point()

        return walked

    def called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with a point before and after it."""

        @functools.wraps(function)
        def walked(*arguments: Any, **options: Any) -> Any:
            self.point()
            try:
                return function(*arguments, **options)
            finally:
                self.point()

        return walked


class _Walked(Awaitable[Any]):
    """A coroutine that is driven step by step."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], points: KillPoints) -> None:
        self._coroutine, self._points = coroutine, points

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = functools.partial(self._coroutine.send, None)
        while True:
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            self._points.point()
            try:
                yield waited_for
            except BaseException as error:  # noqa: BLE001 - handed on, a cancellation included
                step = functools.partial(self._coroutine.throw, error)
            else:
                step = functools.partial(self._coroutine.send, None)
            self._points.point()


def install(path: str, points: KillPoints) -> None:
    """Put the points into the operator's classes; called once in a process."""
    from cotide_operator.consolidation.drain_client import DrainClient
    from cotide_operator.controllers.job_controller import JobController
    from cotide_operator.leaderelection.lease import LeaderElector
    from cotide_operator.provisioning.actuators import WebhookActuator
    from cotide_operator.provisioning.carrying import BookStore
    from cotide_operator.reporting.pod_annotator import PodAnnotator
    from cotide_operator.scheduling.binder import Binder
    from cotide_operator.scheduling.evictor import Evictor
    from cotide_operator.scheduling.phase_resizer import PhaseResizer

    coroutines: dict[str, list[tuple[type, str]]] = {
        "bind": [(Binder, "_bind")],
        "evict": [(Evictor, "carry_out")],
        "job": [(JobController, "reconcile")],
        "note": [(PodAnnotator, "_note"), (PodAnnotator, "_label")],
        "lease": [(LeaderElector, "_try")],
        "provision": [(BookStore, "load"), (BookStore, "save"), (WebhookActuator, "do"), (DrainClient, "write")],
        "drain": [(DrainClient, "write"), (DrainClient, "evict"), (DrainClient, "sleep")],
        "resize": [(PhaseResizer, "_resize"), (PhaseResizer, "_emit")],
    }
    for owner, name in coroutines[path]:
        setattr(owner, name, points.awaited(getattr(owner, name)))
    if path == "bind":
        # Between the decision (written to the ledger) and its hand-over, and around the report.
        for owner, name in ((Binder, "carry_out"), (Binder, "_report")):
            setattr(owner, name, points.called(getattr(owner, name)))

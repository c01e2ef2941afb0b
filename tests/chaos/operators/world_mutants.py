"""Operators that are broken on purpose in how they meet earlier data, a full disk, webhooks, metrics, other versions.

Used by `mutants`. Each must be caught.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, Final

from skewed import refuses_other_versions


def _trusts_what_was() -> None:
    """A watch is resumed at the version that was seen last, wherever the server is by now."""
    from cotide_kube.reflector import Reflector

    async def nothing(self: Any) -> None:
        return None

    Reflector._look = nothing  # type: ignore[method-assign]  # on purpose


def _moves_first() -> None:
    """What was kept is moved aside before it is known whether there is room for the new."""
    from cotide_core.errors import ModelError
    from cotide_operator.models.learned_store import DirectoryStore
    from cotide_operator.observability.ledger_file import write_files

    def saved(self: Any, part: str, files: Any) -> None:
        target, before = self._directory / part, self._directory / f".{part}.before"
        try:
            shutil.rmtree(before, ignore_errors=True)
            if target.exists():
                target.rename(before)
            write_files(target, files)
            shutil.rmtree(before, ignore_errors=True)
        except OSError as error:
            raise ModelError(f"{target} can't be written: {error.strerror}") from error

    DirectoryStore._save = saved  # type: ignore[method-assign]  # on purpose


def _takes_no_for_done() -> None:
    """A pod of a Job whose making was refused is taken for made."""
    from cotide_core.errors import ClusterError
    from cotide_kube.client import KubeClient

    create = KubeClient.create

    async def created(self: Any, path: str, body: Any, *rest: Any, **more: Any) -> Any:
        try:
            return await create(self, path, body, *rest, **more)
        except ClusterError:
            if not path.endswith("/pods"):
                raise
            return {**body, "metadata": {**body["metadata"], "uid": "made", "resourceVersion": "1"}}

    KubeClient.create = created  # type: ignore[method-assign]  # on purpose


def _gaps_are_zero() -> None:
    """A service of which nobody tells has nothing to do."""
    from cotide_core.events import ServiceSampled
    from cotide_operator.usage.usage_feed import UsageFeed

    read = UsageFeed.read_once

    async def read_through(self: Any) -> None:
        for pods in self._latest.values():
            for latest in pods.values():
                latest.is_published = False
        await read(self)
        for pods in self._latest.values():
            for key, latest in pods.items():
                if not latest.is_published:
                    self._emit(ServiceSampled(key, 0.0))

    take = UsageFeed._take

    def taken(self: Any, reading: Any) -> None:
        take(self, reading)
        for pods in self._latest.values():
            if reading.pod in pods and reading.requests_per_second is not None:
                pods[reading.pod].is_published = True

    UsageFeed.read_once, UsageFeed._take = read_through, taken  # type: ignore[method-assign]  # on purpose


WORLD_MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "trusts what was": _trusts_what_was,
    "moves first": _moves_first,
    "takes no for done": _takes_no_for_done,
    "gaps are zero": _gaps_are_zero,
    "knows one version": refuses_other_versions,
}

"""What a run has besides nodes, pods and a server: metrics, somebody's webhook, a disk for models, a backup.

Used by `chaos_run`; each is there where the plan asks for it, and can go wrong by a step of the plan. Invariant of the
models' disk: what was kept of what was learned is there and whole whenever an operator has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from backups import Backups, Site
from chaos_steps import Plan, Step
from environment import Environment
from invariant_checker import InvariantChecker
from metric_faults import PartialPrometheus
from skewed import TOMORROW
from webhook_faults import WrongWebhook
from write_record import WriteRecord

from cotide_core.errors import ModelError
from cotide_kube.client import KubeClient
from cotide_operator.models.learned_store import LEARNED, RUN_TIMES, DirectoryStore
from cotide_predictors.persistence.model_files import MANIFEST, unpack

STEPS: Final = ("backup", "restore", "metrics", "webhook", "measured")
KNOWN_SECONDS: Final = 60.0
"""Longest wait until an operator knows how busy the service is; chosen for a busy machine."""
NOTE_SECONDS: Final = 0.05
MODELS: Final = "kept-models"
"""The directory of models; `machine_troubles` knows it by this name."""
_MODELS: Final = """\
models:
  directory: {directory}
  pollSeconds: 0.1
  retraining: {{enabled: true, pooledNamespaces: ['*'], checkSeconds: 0.2, keepSeconds: 0.1}}
"""


class RunContext:
    """All of it, of one run."""

    def __init__(
        self,
        plan: Plan,
        site: Site,
        checker: InvariantChecker,
        environment: Environment,
        client: KubeClient,
        folder: Path,
        record: WriteRecord,
    ) -> None:
        self._checker, self._environment, self._client = checker, environment, client
        self._models = folder / MODELS if plan.models else None
        self.metrics = PartialPrometheus(checker, environment.namespace) if plan.measured else None
        self.webhook = WrongWebhook(environment.namespace, plan.seed) if plan.hooked else None
        self.backups = Backups(site, checker, environment, record)
        self.apply: Callable[[], Awaitable[None]] = self._nothing
        """What users do once more after a backup was restored."""
        self._kept = False
        self._of_tomorrow = "newer" in plan.skews
        self.violations: list[str] = []

    @staticmethod
    async def _nothing() -> None:
        """Nobody has asked for anything."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if self.metrics is not None:
                await stack.enter_async_context(self.metrics.serving())
            if self.webhook is not None:
                await stack.enter_async_context(self.webhook.serving(self._client))
            noting = asyncio.ensure_future(self._note())
            try:
                yield
            finally:
                noting.cancel()

    def sections(self) -> str:
        """Return what the operator's configuration has of it."""
        models = _MODELS.format(directory=self._models) if self._models is not None else ""
        return models + (self.metrics.section if self.metrics is not None else "")

    async def do(self, step: Step) -> None:
        match step.what:
            case "backup":
                await self.backups.save()
            case "restore":
                await self.backups.restore()
                await self.apply()
            case "metrics" if self.metrics is not None:
                self.metrics.says = step.how["says"]
            case "webhook" if self.webhook is not None:
                self.webhook.says = step.how["says"]
            case "measured" if self.metrics is not None:
                deadline = time.monotonic() + KNOWN_SECONDS
                while not self.metrics.known and time.monotonic() < deadline:
                    await asyncio.sleep(0.02)
            case _:
                raise AssertionError(step.what)

    def heal(self) -> None:
        if self.metrics is not None:
            self.metrics.says = ""
        if self.webhook is not None:
            self.webhook.says = ""

    async def _note(self) -> None:
        """Note that something was kept; whether it is whole is asked only when nobody writes it."""
        while self._models is not None and not self._kept:
            with contextlib.suppress(ModelError):
                self._kept = await self._learned()
            await asyncio.sleep(NOTE_SECONDS)

    async def _learned(self) -> bool:
        """Whether there is anything that was learned; raises where it can't be read."""
        assert self._models is not None
        files = await DirectoryStore(self._models / LEARNED).load(RUN_TIMES, "")
        if files is not None and not (self._of_tomorrow and self._is_of_tomorrow(files)):
            unpack(files)
        return files is not None

    @staticmethod
    def _is_of_tomorrow(files: Mapping[str, bytes]) -> bool:
        """Whether a newer version, which is to read them, wrote these files last."""
        return bool(json.loads(files[MANIFEST])["schema_version"] == TOMORROW)

    async def ended(self) -> None:
        """Look at what was learned: nobody writes it now."""
        if self._models is None:
            return
        try:
            there = await self._learned()
        except ModelError as error:
            self.violations.append(f"what was learned can't be read: {error}")
            return
        if self._kept and not there:
            self.violations.append("what was learned of run times was kept, and is there no more")
        self._kept = there

    def breaches(self) -> list[str]:
        """Return what must never happen and did."""
        return self.violations + (self.metrics.breaches if self.metrics is not None else [])

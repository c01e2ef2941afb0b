"""Learns the phases of Jobs from the measured usage of their pods, by type, and sets the requests of the next pods.

Started by `assembly` on the replica that leads, where ``phases.learn`` is set. Readings of running pods are collected
while they run; a pod that succeeds is a run, which is scored and taught (`cotide_predictors.phases`). The controller of
Jobs asks when it makes a pod. Invariants: runs of a namespace teach that namespace alone, or the pool of namespaces
that the administrator configured. Pods with stated phases, with several containers or without a cpu request neither
teach nor use learned phases. A store that fails costs a line in the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cotide_core.errors import CotideError, InputError, ModelError
from cotide_core.phases.growth import Amounts
from cotide_core.phases.progress import StatedPhase, Usage
from cotide_core.recording.samples import POOL
from cotide_core.units import CPU, MEMORY, bounded_amount
from cotide_kube.objects import PodObject
from cotide_kube.turns import Turn
from cotide_operator.apis.types import JobSpec
from cotide_operator.cache.object_cache import CustomObject, Kind, ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.config.phase_settings import PhaseSettings
from cotide_operator.config.settings import EVERY
from cotide_operator.models.learned_store import PHASES, LearnedStore, StoreSilent
from cotide_operator.observability.metrics import Metrics
from cotide_operator.translation.pod_phases import NO_PHASES, Phases, asked_by, started_seconds

if TYPE_CHECKING:
    from cotide_predictors.phases.learned_phases import LearnedPhases

_LOG = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
"""Seconds of the operator's clock between two looks at readings, with at most ten looks per wall second. Chosen: below
any source's interval."""
LEAST_WALL_SECONDS: Final = 0.1
MAX_PODS: Final = 5_000
"""Pods followed at once. Beyond it, the learner that follows most gives way to one below its share, and further pods
teach nothing. Chosen: 50 MB with all their readings."""
MAX_READINGS: Final = 512
"""Readings of a pod; beyond it, every other one is dropped. Chosen: ten for each distinct part of a run."""
UNSEEN_SECONDS: Final = 30.0
"""Wall seconds that a pod may have run before the first look. The beginning of an older pod is unknown, and its rest
would teach as a whole run. Chosen: a change of leaders takes less, and few runs are as short."""
FILE: Final = "phases.json"
STATES: Final = ("learning", "trusted", "fallen back")
UsageOf = Callable[[str], Usage | None]


@dataclass(slots=True)
class _Followed:
    uid: str
    type: str
    learner: str
    began: float
    largest: Amounts
    readings: list[tuple[float, float, float]] = field(default_factory=list)
    latest: float = 0.0


class PhaseLearning:
    """Usage of types of Jobs, by learner.

    Parameters
    ----------
    kept : store that outlives the process; None for no store.
    """

    def __init__(
        self,
        settings: PhaseSettings,
        cache: ObjectCache,
        *,
        clock: Clock,
        metrics: Metrics,
        kept: LearnedStore | None = None,
    ) -> None:
        self._settings, self._cache, self._clock = settings, cache, clock
        self._metrics, self._kept = metrics, kept
        self._followed: dict[str, _Followed] = {}
        self._by_learner: dict[str, dict[str, None]] = {}
        """Keys of the pods that are followed, the latest last."""
        self._profiles: dict[tuple[str, str], LearnedPhases] = {}
        """By learner and type; the most recently taught one is last."""
        self._restored: dict[str, float] = {}
        """By learner, the monotonic second of the next request to the store; infinite once it has answered."""
        self._unsaved: set[str] = set()
        self._delete_at: dict[str, float] = {}
        """The monotonic second of the next attempt to delete a learner that is gone."""
        cache.subscribe(self._changed)

    async def run(self, usage_of: UsageOf) -> None:
        """Follow pods until cancelled."""
        kept = time.monotonic()
        while True:
            await asyncio.sleep(max(POLL_SECONDS / self._clock.speed, LEAST_WALL_SECONDS))
            await self.look(usage_of)
            if time.monotonic() - kept >= self._settings.keep_seconds:
                kept = time.monotonic()
                await self.keep()

    async def look(self, usage_of: UsageOf) -> None:
        """Take the readings of running pods that teach, and forget namespaces that are gone.

        Parameters
        ----------
        usage_of : pod to its last fresh reading; its seconds are those of the operator's clock.
        """
        turn = Turn()
        for job_key, job in list(self._cache.jobs.items()):
            await turn.give_way()
            if not job.spec.get("type") or job.spec.get("phases"):
                continue
            learner = self._learner_of(job.metadata.namespace)
            if self._restored.get(learner, 0.0) <= time.monotonic():
                await self._restore(learner)
            for pod in self._cache.pods_of_job(job_key):
                self._follow(pod, str(job.spec["type"]), learner, usage_of)
        for key in [key for key in self._followed if key not in self._cache.pods]:
            self._drop(key)
        # Also for a namespace that taught nothing since the start: the next tenant of the name must not get its data.
        for learner in [text for text in self._restored if text != POOL and self._cache.is_gone(text)]:
            if self._delete_at.get(learner, 0.0) <= time.monotonic():
                await self._forget(learner)

    def phases_for(self, job: CustomObject, spec: JobSpec) -> Phases:
        """Return the cpu and memory of the next pod of a Job by phase, in order; empty to leave the pod unchanged."""
        largest = _largest_of(spec)
        profile = self._profiles.get((self._learner_of(job.metadata.namespace), spec.type))
        if not spec.type or spec.phases or largest is None or profile is None or not profile.runs:
            return NO_PHASES
        if profile.runs[-1].largest != largest:
            return NO_PHASES
        return tuple(
            StatedPhase(f"learned-{number}", need.millicores, need.memory_bytes, need.seconds)
            for number, need in enumerate(profile.needs())
        )

    async def keep(self) -> None:
        """Write changed profiles into the store."""
        if self._kept is None:
            self._unsaved.clear()
            return
        for learner in sorted(text for text in self._unsaved if math.isinf(self._restored.get(text, 0.0))):
            self._unsaved.discard(learner)  # runs taught during the write still need another write
            data = {name: profile.as_json() for (whose, name), profile in self._profiles.items() if whose == learner}
            try:
                await self._kept.save(PHASES, learner, {FILE: json.dumps(data).encode()})
            except CotideError as error:
                self._unsaved.add(learner)
                _LOG.warning("phases that were learned%s are not kept: %s", _whose(learner), error)

    def _learner_of(self, namespace: str) -> str:
        pooled = self._settings.pooled_namespaces
        return POOL if namespace in pooled or EVERY in pooled else namespace

    def _follow(self, pod: PodObject, job_type: str, learner: str, usage_of: UsageOf) -> None:
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if pod.status.phase != "Running" or pod.metadata.deletion_timestamp is not None:
            return
        known = self._followed.get(key)
        if known is None or known.uid != pod.metadata.uid:
            alone = len(pod.spec.containers) == 1 and not pod.spec.init_containers
            largest = asked_by(pod) if alone else None
            if largest is None or not largest.millicores:
                return
            now, started = self._clock.now(), started_seconds(pod, self._clock.from_wall)
            began = now if started is None else min(started, now)
            if now - began > UNSEEN_SECONDS * self._clock.speed or not self._has_room(learner):
                return
            self._drop(key)  # it has another uid
            known = _Followed(pod.metadata.uid, job_type, learner, began, largest)
            self._followed[key] = known
            self._by_learner.setdefault(learner, {})[key] = None
        usage = usage_of(key)
        if usage is None or usage.at_seconds <= max(known.latest, known.began):
            return
        known.latest = usage.at_seconds
        known.readings.append((usage.at_seconds - known.began, usage.millicores, usage.memory_bytes))
        if len(known.readings) > MAX_READINGS:
            del known.readings[1::2]

    def _has_room(self, learner: str) -> bool:
        """Whether one more pod may be followed; when all places are taken, a pod of the largest learner is dropped."""
        if len(self._followed) < MAX_PODS:
            return True
        own = len(self._by_learner.get(learner, ()))
        if own * len(self._by_learner.keys() | {learner}) >= MAX_PODS:
            return False
        most = max(self._by_learner, key=lambda one: len(self._by_learner[one]))
        if len(self._by_learner[most]) <= own + 1:
            return False
        self._drop(next(reversed(self._by_learner[most])))  # the pod with the fewest readings
        return True

    def _drop(self, key: str) -> None:
        """Stop following a pod."""
        known = self._followed.pop(key, None)
        if known is not None:
            keys = self._by_learner[known.learner]
            del keys[key]
            if not keys:
                del self._by_learner[known.learner]

    def _changed(self, kind: Kind, key: str) -> None:
        if kind != "pods" or key not in self._followed:
            return
        pod, known = self._cache.pods.get(key), self._followed[key]
        if pod is None or pod.metadata.uid != known.uid or pod.status.phase == "Failed":
            self._drop(key)
        elif pod.status.phase == "Succeeded":
            self._drop(key)
            self._teach(known)

    def _teach(self, known: _Followed) -> None:
        from cotide_predictors.phases.learned_phases import LearnedPhases, run_of  # only where it learns

        run = run_of(known.readings, self._clock.now() - known.began, known.largest)
        if run is None:
            self._metrics.phase_runs.labels("too little").inc()
            return
        name = (known.learner, known.type)
        profile = self._profiles.pop(name, None) or LearnedPhases()
        profile.add(run)
        self._profiles[name] = profile
        while len(self._profiles) > self._settings.types_most:
            self._unsaved.add(self._drop_one())
        self._unsaved.add(known.learner)
        self._metrics.phase_runs.labels("taught").inc()
        self._show()

    def _drop_one(self) -> str:
        """Drop and return the least recently taught type of the largest learner: it cannot push out types of others."""
        counts = Counter(learner for learner, _ in self._profiles)
        largest = max(counts, key=counts.__getitem__)
        del self._profiles[next(name for name in self._profiles if name[0] == largest)]
        return largest

    def _show(self) -> None:
        states = [learned_phases.state for learned_phases in self._profiles.values()]
        for state in STATES:
            self._metrics.phase_types.labels(state).set(states.count(state))
        sums: dict[str, list[Any]] = {}
        for profile in self._profiles.values():
            for rule, scores in profile.scores.items():
                sums.setdefault(rule, []).extend(scores)
        for rule, found in sums.items():
            for what in ("under", "held") if found else ():
                mean = sum(getattr(one, what) for one in found) / len(found)
                self._metrics.phase_forecast.labels(rule, what).set(mean)

    async def _restore(self, learner: str) -> None:
        from cotide_predictors.phases.learned_phases import LearnedPhases

        if self._kept is None:
            self._restored[learner] = math.inf
            return
        try:
            files = await self._kept.load(PHASES, learner) or {}
        except StoreSilent as error:
            self._restored[learner] = time.monotonic() + self._settings.keep_seconds
            _LOG.warning("phases that were learned%s before are not loaded yet: %s", _whose(learner), error)
            return
        except CotideError as error:
            self._restored[learner] = math.inf
            _LOG.warning("phases that were learned%s before can't be read: %s", _whose(learner), error)
            return
        self._restored[learner] = math.inf  # only now: profiles that are not loaded yet must not be overwritten
        try:
            data = json.loads(files.get(FILE, b"{}"))
            if not isinstance(data, dict):
                raise ModelError("it is not a mapping of types")
            for name, one in list(data.items())[-self._settings.types_most :]:
                profile = LearnedPhases.from_json(one)
                since = self._profiles.get((learner, name))
                for run in since.runs if since is not None else ():
                    profile.add(run)
                self._profiles[learner, name] = profile
        except (CotideError, ValueError, RecursionError) as error:
            _LOG.warning("phases that were learned%s before can't be read: %s", _whose(learner), error)
        self._show()

    async def _forget(self, learner: str) -> None:
        """Drop the profiles of a namespace that is gone: another tenant may get the name."""
        self._profiles = {name: profile for name, profile in self._profiles.items() if name[0] != learner}
        self._unsaved.discard(learner)
        self._show()
        if self._kept is not None:
            try:
                await self._kept.delete(learner)
            except CotideError as error:
                # The next tenant of the name does not read the old profiles; its own, or an empty set, overwrite them.
                self._restored[learner] = math.inf
                self._unsaved.add(learner)
                if learner not in self._delete_at:
                    _LOG.warning("phases that were learned%s can't be deleted yet: %s", _whose(learner), error)
                self._delete_at[learner] = time.monotonic() + self._settings.keep_seconds
                return
        self._restored.pop(learner, None)
        self._delete_at.pop(learner, None)


def _largest_of(spec: JobSpec) -> tuple[int, int] | None:
    """Return the requests of a Job's pod with one container and a cpu request; otherwise None."""
    pod = spec.template.spec.model_dump(by_alias=True)
    if len(pod["containers"]) != 1 or pod.get("initContainers"):
        return None
    requests = (pod["containers"][0].get("resources") or {}).get("requests") or {}
    try:
        millicores, memory = bounded_amount(CPU, requests.get(CPU, 0)), bounded_amount(MEMORY, requests.get(MEMORY, 0))
    except InputError:
        return None
    return (millicores, memory) if millicores else None


def _whose(learner: str) -> str:
    return "" if learner == POOL else f" in namespace {learner}"

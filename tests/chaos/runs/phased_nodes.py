"""Kubelets that resize pods, the work that goes through its phases, and what must hold of both.

Used by `chaos_run` for plans with phases. A kubelet admits pods and grants sizes that fit beside what it has put aside
for others, refuses the first and puts off the second else, puts some off that would fit, and calls some infeasible.
Half of the Jobs say their phases, the others leave it to the operator's clock. Work ends once its last phase was
granted and worked through: a phase that waits for ever, or a pod that is lost, keeps its run from settling. At every
version::

    no node beyond what it offers   of what is set for its running pods
    no empty promise                a phase is granted without a note only where its kubelet has set its need, or more
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Final

from environment import PAUSE_SECONDS, Environment, Object
from invariant_checker import ENDED, CheckedPod, InvariantChecker
from report import Report

from cotide_core.units import resource_amount
from cotide_kube.client import KubeClient

INFEASIBLE_SHARE: Final = 0.06
DEFERRED_SHARE: Final = 0.2
"""Of wishes for more; chosen."""
DEFERRED_SECONDS: Final = (0.05, 0.6)
SET_SECONDS: Final = (0.0, 0.15)
"""Chosen: from a grant until the container has it."""


class PhasedNodes:
    """Serves the phased pods of one run, in place of the environment.

    Parameters
    ----------
    seed : of what kubelets put off and refuse.
    """

    def __init__(self, client: KubeClient, checker: InvariantChecker, environment: Environment, seed: int) -> None:
        self._client, self._checker, self._environment = client, checker, environment
        self._rng = random.Random(f"kubelets {seed}")
        self._put_aside: dict[str, int] = {}
        """What kubelets have put aside, by uid."""
        self.resized = self.granted = self.refused = 0
        environment.phased, environment.admits = self.live, self._admits
        checker.kubelets_refuse = True
        checker.listeners.append(self._changed)

    async def live(self, pod: CheckedPod) -> None:
        """Be one pod: its kubelet and its work, until it ends or goes."""
        assert pod.phased is not None
        held, seen = pod.phased.asks, pod.phased.generation
        self._put_aside[pod.uid] = held
        await self._emit(pod, held, "", seen)
        verdicts: dict[int, tuple[str, float]] = {}
        begun: dict[str, float] = {}
        names = [name for name, _ in pod.phased.needs]
        while (now := self._still(pod)) is not None:
            assert now.phased is not None
            asks, is_news, seen = now.phased.asks, now.phased.generation != seen, now.phased.generation
            if asks != held:
                why = self._obstacle(now, asks, held, verdicts)
                if not why:
                    self._put_aside[pod.uid] = max(asks, held)
                    await asyncio.sleep(self._rng.uniform(*SET_SECONDS))
                    held, self.resized = asks, self.resized + 1
                    await self._emit(pod, held, "", seen)
                    self._put_aside[pod.uid] = held
                elif why != now.phased.pending or is_news:
                    await self._emit(pod, held, why, seen)
            elif now.phased.pending or is_news:
                await self._emit(pod, held, "", seen)
            phase = now.phased.granted
            if phase in names and phase == (now.phased.said or phase):
                begun.setdefault(phase, time.monotonic())
                if time.monotonic() - begun[phase] >= (pod.seconds or 0.0):
                    index = names.index(phase) + 1
                    if index == len(names):
                        await self._environment.finish(now)
                        break
                    if not now.phased.mute:
                        await self._say(pod, names[index])
            await asyncio.sleep(PAUSE_SECONDS)
        self._put_aside.pop(pod.uid, None)

    def report(self, report: Report) -> None:
        """Say how much there was."""
        report.resized, report.granted, report.refused = self.resized, self.granted, self.refused

    def _admits(self, pod: CheckedPod) -> bool:
        """Whether there is room for a pod that was bound: a size may have been put aside a moment before."""
        fits = self._taken(pod.node, besides=pod.uid) + dict(pod.requests).get("cpu", 0) <= self._offered(pod.node)
        self._put_aside[pod.uid] = dict(pod.requests).get("cpu", 0) if fits else 0
        self.refused += not fits
        return fits

    def _still(self, pod: CheckedPod) -> CheckedPod | None:
        """Return a pod that runs as it is now; the checker may see a moment later that it began."""
        now = self._checker.pods.get(pod.key)
        gone = now is None or now.uid != pod.uid or now.leaving or now.phase in ENDED
        return None if gone or self._environment.closed else now

    def _obstacle(self, pod: CheckedPod, asks: int, held: int, verdicts: dict[int, tuple[str, float]]) -> str:
        """Say why a pod can't have what it asks for now; empty where it can."""
        if asks <= held:
            return ""
        if asks not in verdicts:
            draw, until = self._rng.random(), time.monotonic() + self._rng.uniform(*DEFERRED_SECONDS)
            infeasible = draw < INFEASIBLE_SHARE
            verdicts[asks] = ("Infeasible", float("inf")) if infeasible else (
                ("Deferred", until) if draw < INFEASIBLE_SHARE + DEFERRED_SHARE else ("", 0.0)
            )  # fmt: skip
        verdict, until = verdicts[asks]
        if verdict and time.monotonic() < until:
            return verdict
        return "" if self._taken(pod.node, besides=pod.uid) + asks <= self._offered(pod.node) else "Deferred"

    def _taken(self, node: str, besides: str = "") -> int:
        taken = 0
        for pod in self._checker.pods.values():
            if pod.node == node and pod.holds and pod.uid != besides:
                taken += self._put_aside.get(pod.uid, 0)
        return taken

    def _offered(self, node: str) -> int:
        return resource_amount("cpu", self._checker.nodes[node]["status"]["allocatable"]["cpu"])

    async def _emit(self, pod: CheckedPod, held: int, pending: str, seen: int) -> None:
        condition: Object = {"type": "PodResizePending", "status": "True", "reason": pending, "message": "chaos"}
        shown = condition if pending else {"type": "PodResizePending", "$patch": "delete"}
        container: Object = {
            "name": "c",
            "image": "none",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": pod.created}},
            "resources": {"requests": {"cpu": f"{held}m", "memory": "64Mi"}},
        }
        status = {"conditions": [shown], "containerStatuses": [container], "observedGeneration": seen}
        await self._patch(pod, "/status", {"status": status}, "strategic")

    async def _say(self, pod: CheckedPod, phase: str) -> None:
        await self._patch(pod, "", {"metadata": {"annotations": {"cotide.dev/phase": phase}}}, "merge")

    async def _patch(self, pod: CheckedPod, subresource: str, body: Object, kind: Any) -> None:
        body.setdefault("metadata", {})["uid"] = pod.uid
        path = f"{self._environment.pods}/{pod.key.partition('/')[2]}{subresource}"
        await self._environment.insist(lambda: self._client.patch(path, body, kind))

    def _changed(self, plural: str, old: object, new: object) -> None:
        if not isinstance(new, CheckedPod):
            return
        if new.phase == "Running" and not (isinstance(old, CheckedPod) and old.phase == "Running"):
            self._weigh(new.node, new.version)
        if new.phased is None:
            return
        before = old.phased if isinstance(old, CheckedPod) and old.uid == new.uid else None
        after = new.phased
        if after != before:
            self._checker.history.append(f"{new.version} pod {new.key} {after.words}")
        if before is not None and before.held != after.held:
            self._weigh(new.node, new.version)
        written = (after.granted, after.note)
        if not after.granted or (before is not None and written == (before.granted, before.note)):
            return
        self.granted += 1
        need = dict(after.needs).get(after.granted)
        if not after.note and (need is None or after.held < need):
            self._breach(
                new.version, f"pod {new.key} was granted {after.granted}, which needs {need}, and has {after.held}"
            )

    def _weigh(self, node: str, version: int) -> None:
        """Compare what a node offers with what its kubelet has set."""
        held = {
            pod.key: pod.phased.held
            if pod.phased is not None and pod.phased.held is not None
            else dict(pod.requests).get("cpu", 0)
            for pod in self._checker.pods.values()
            if pod.node == node and pod.phase == "Running"
        }
        if node in self._checker.nodes and sum(held.values()) > self._offered(node):
            self._breach(version, f"node {node} offers {self._offered(node)} cpu, its kubelet has set {held}")

    def _breach(self, version: int, what: str) -> None:
        self._checker.violations.append(f"version {version}: {what}")
        self._checker.history.append(f"{version} BREACH {what}")

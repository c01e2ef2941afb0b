"""Batch jobs as pods on the service's node, through the official client.

Used by `campaign` and `passive`. Pods name their node, so that no scheduler is involved, and have the labels and
annotations that Cotide learns from. A pod that ended is made again. Invariant: every pod of a campaign has the label
`CAMPAIGN`, and is deleted when the context is left, also after a failure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from cotide_core.classes import CLASS_LABEL, WorkloadClass
from cotide_core.errors import ClusterError, InputError
from cotide_kube.answers import ApiError
from cotide_kube.objects import PodObject
from cotide_kube.official import WRITE_SECONDS, ask, connect, list_in, object_in
from cotide_kube.plain_objects import all_checked
from cotide_kube.timestamps import parse_timestamp
from cotide_lab.predictors.profiling.design import Mix
from cotide_lab.profile.plan import BatchJob

CAMPAIGN: Final = "cotide.dev/profile"
POLL_SECONDS: Final = 0.5
"""Between two looks at the pods (chosen)."""
START_SECONDS: Final = 120.0
"""Seconds that pods may take until they run: an image may have to be pulled (chosen)."""


class PodMix:
    """Pods that are kept running, and those that ended since `mark`. Their cpu is unknown here."""

    def __init__(self) -> None:
        self.fault = ""
        self._ended: list[tuple[str, float]] = []
        self._lock = threading.Lock()

    def mark(self) -> None:
        """Begin the window: forget the pods that ended so far."""
        with self._lock:
            self._ended = []

    def take(self) -> tuple[tuple[tuple[str, float], ...], float]:
        """Return the pods that succeeded since the mark, with their seconds, and nan for their cpu."""
        with self._lock:
            return tuple(self._ended), float("nan")

    def failed(self) -> tuple[tuple[str, int], ...]:
        """Return nothing: a pod that fails ends the campaign."""
        return ()

    def ended(self, name: str, seconds: float) -> None:
        """Note a pod that succeeded."""
        with self._lock:
            self._ended.append((name, seconds))


class ClusterMachine:
    """The machine of the jobs: one node of a cluster.

    Parameters
    ----------
    image : of every job; its command is run by ``/bin/sh -c``.

    Raises
    ------
    ClusterError
        When the cluster can't be reached, or there is no such node.
    """

    def __init__(
        self, node: str, namespace: str, image: str, *, kubeconfig: str | None = None, context: str | None = None
    ) -> None:
        from kubernetes import client

        self._core: Any = client.CoreV1Api(connect(kubeconfig, context))
        self._node, self._namespace, self._image = node, namespace, image
        self._made = 0
        self._run = f"{int(time.time())}"
        try:
            found = object_in(ask(self._core.read_node, node))
        except ApiError as error:
            raise ClusterError(f"node {node}: {error}") from error
        if (found.get("metadata") or {}).get("name") != node:
            raise ClusterError(f"the answer about node {node} is not what an API server sends; is it one?")

    @contextmanager
    def running(self, mix: Mix, jobs: Sequence[BatchJob]) -> Iterator[PodMix]:
        """Keep a mix running inside the context."""
        found, stop, there = PodMix(), threading.Event(), threading.Event()
        by_name = {job.kind.name: job for job in jobs}
        wanted = [by_name[name] for name, count in mix for _ in range(count)]
        thread = threading.Thread(target=self._keep, args=(wanted, found, stop, there), daemon=True)
        thread.start()
        try:
            if not there.wait(START_SECONDS):
                raise ClusterError(f"the jobs did not run on {self._node} within {START_SECONDS:g} s")
            yield found
        finally:
            stop.set()
            thread.join()
            self._clear()

    def pods_of_node(self) -> list[dict[str, Any]]:
        """Return the pods on the node, as the API has them; an invalid pod is an error: it may be batch, of any
        type."""
        selector = f"spec.nodeName={self._node}"
        found = list_in(ask(self._core.list_pod_for_all_namespaces, field_selector=selector))[0]
        return all_checked(found, PodObject, "pod")

    def _keep(self, wanted: Sequence[BatchJob], found: PodMix, stop: threading.Event, there: threading.Event) -> None:
        """Make pods, and make them again when they ended, in a thread of its own, until a stop."""
        try:
            names = [self._make(job) for job in wanted]
            while not stop.is_set():
                own = {item["metadata"]["name"]: item for item in all_checked(self._own_pods(), PodObject, "pod")}
                for index, job in enumerate(wanted):
                    pod = own.get(names[index])
                    phase = "" if pod is None else pod.get("status", {}).get("phase", "")
                    if phase == "Failed":
                        found.fault = f"pod {names[index]} failed: {_why(pod or {})}"
                        return
                    if phase == "Succeeded":
                        seconds = _lasted(pod or {})
                        if seconds is not None:
                            found.ended(job.kind.name, seconds)
                        self._delete(names[index])
                        names[index] = self._make(job)
                if all(own.get(name, {}).get("status", {}).get("phase") == "Running" for name in names):
                    there.set()
                stop.wait(POLL_SECONDS)
        except ClusterError as error:
            found.fault = str(error)
        finally:
            there.set()

    def _make(self, job: BatchJob) -> str:
        self._made += 1
        name = f"cotide-profile-{self._run}-{self._made}"
        ask(self._core.create_namespaced_pod, self._namespace, self._pod(name, job), seconds=WRITE_SECONDS)
        return name

    def _pod(self, name: str, job: BatchJob) -> dict[str, Any]:
        labels = {CLASS_LABEL: WorkloadClass.BATCH.value, CAMPAIGN: self._run}
        notes = {"cotide.dev/type": job.kind.name, "cotide.dev/input-size": str(job.kind.input_bytes)}
        container = {
            "name": "job",
            "image": self._image,
            "command": ["/bin/sh", "-c", job.command],
            "resources": {"requests": {"cpu": f"{job.kind.millicores}m"}},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "annotations": notes},
            "spec": {
                "nodeName": self._node,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        }

    def _own_pods(self) -> list[dict[str, Any]]:
        selector = f"{CAMPAIGN}={self._run}"
        return list_in(ask(self._core.list_namespaced_pod, self._namespace, label_selector=selector))[0]

    def _delete(self, name: str) -> None:
        try:
            ask(
                self._core.delete_namespaced_pod,
                name,
                self._namespace,
                grace_period_seconds=0,
                seconds=WRITE_SECONDS,
            )
        except ApiError as error:
            if error.status != 404:
                raise

    def _clear(self) -> None:
        refused: list[ClusterError] = []
        for pod in self._own_pods():
            try:
                self._delete(pod["metadata"]["name"])
            except ClusterError as error:  # of one: the others still go
                refused.append(error)
        if refused:
            raise refused[0]


def _lasted(pod: Mapping[str, Any]) -> float | None:
    """Return the run time of a pod's container, in seconds; None when unknown."""
    for status in pod.get("status", {}).get("containerStatuses") or []:
        ended = (status.get("state") or {}).get("terminated") or {}
        if ended.get("startedAt") and ended.get("finishedAt"):
            try:
                begin, end = (parse_timestamp(ended[key]) for key in ("startedAt", "finishedAt"))
            except InputError:
                continue
            # Whole seconds in a cluster: the time of a job that ends within one is unknown.
            return (end - begin) or None
    return None


def _why(pod: Mapping[str, Any]) -> str:
    status = pod.get("status", {})
    reasons = [
        str(((one.get("state") or {}).get("terminated") or {}).get("reason") or "")
        for one in status.get("containerStatuses") or []
    ]
    return status.get("message") or status.get("reason") or ", ".join(filter(None, reasons)) or "no reason is given"

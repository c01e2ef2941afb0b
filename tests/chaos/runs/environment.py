"""The rest of the cluster: nodes with their kubelets, the collector of orphaned pods, and the users.

Acts on what the checker sees, straight on the API server, and keeps trying while that is away. A pod that is told to
stop tells how it ended before its kubelet lets it go, and may have finished its work by then. Invariant: a pod that was
taken away by force never succeeds, so that "exactly once" can be asked of every index of a Job.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from invariant_checker import ENDED, CheckedPod, InvariantChecker

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient

PAUSE_SECONDS: Final = 0.05
"""Between two tries on a server that is away; chosen."""
INSIST_SECONDS: Final = 60.0
"""How long a server may be away; chosen."""
_TAINT: Final = "node.kubernetes.io/not-ready"

Object = dict[str, Any]


class Environment:
    """Kubelets and users of one run.

    Parameters
    ----------
    client : KubeClient
        An administrator's, straight to the server.
    namespace : str
        Of the run's pods and Jobs.
    tidy : bool
        Whether somebody deletes each pod of a Job as soon as it has ended.
    """

    def __init__(self, client: KubeClient, checker: InvariantChecker, namespace: str, *, tidy: bool = False) -> None:
        self._client, self._checker, self.namespace, self._tidy = client, checker, namespace, tidy
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.jobs = f"/apis/cotide.dev/v1alpha1/namespaces/{namespace}/jobs"
        self.services = f"/apis/cotide.dev/v1alpha1/namespaces/{namespace}/workloads"
        self._tasks: set[asyncio.Task[None]] = set()
        self._served: set[str] = set()
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._worked: set[str] = set()
        """Uids of pods whose work is done, whatever the API says yet."""
        self._stopping: set[str] = set()
        self._removing: set[str] = set()
        self.faults: list[BaseException] = []
        self.closed = False
        self.phased: Callable[[CheckedPod], Coroutine[Any, Any, None]] | None = None
        """Who serves pods with phases once they run."""
        self.admits: Callable[[CheckedPod], bool] = lambda _: True
        """Whether a pod's kubelet has room for it."""
        checker.listeners.append(self._changed)

    async def close(self) -> None:
        """Stop acting."""
        self.closed = True
        for timer in self._due.values():
            timer.cancel()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forget(self) -> None:
        """Stop all that is under way: the server's data go back."""
        for timer in self._due.values():
            timer.cancel()
        self._due.clear()
        self.closed = True
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self.closed = False

    def follow_anew(self) -> None:
        """Run and stop pods as they are now: kubelets have what the API server has."""
        pods = [pod for pod in self._checker.pods.values() if pod.key.partition("/")[0] == self.namespace]
        self._worked = {pod.uid for pod in pods if pod.phase in ENDED}
        self._served = {pod.uid for pod in pods if pod.phase != "Pending"}
        self._stopping, self._removing = set(), set()
        for pod in pods:
            if pod.phase == "Running" and pod.seconds is not None and not pod.leaving:
                self._due_after(pod)
            self._serve(pod)
            self._collect(pod)
            if self._tidy and pod.job and pod.phase in ENDED and not pod.leaving:
                self._do(self._sweep(pod))

    async def insist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat until the server answers; None when it says that there is nothing to do (404, 409)."""
        deadline = time.monotonic() + INSIST_SECONDS
        while True:
            try:
                return await call()
            except ApiError as error:
                if error.status in (404, 409) and "admission webhook" not in str(error):
                    return None
                hooked = "admission webhook" in str(error)  # somebody's, which may think otherwise the next time
                passing = error.status >= 500 or error.status in (429, 403, 401) or hooked
                if not passing or time.monotonic() > deadline:
                    raise
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    # What users and administrators do.

    async def pod(self, name: str, cls: str, cpu: str, seconds: float | None) -> None:
        metadata: Object = {"name": name, "labels": {"cotide.dev/class": cls}}
        if seconds is not None:
            metadata["annotations"] = {"chaos/seconds": f"{seconds:g}"}
        await self.insist(
            lambda: self._client.create(self.pods, {"metadata": metadata, "spec": _spec(cpu, seconds is None)})
        )

    async def job(
        self, name: str, cls: str, *, completions: int, parallelism: int, cpu: str, seconds: float,
        needs: Sequence[int] = (), mute: bool = False, gang: Object | None = None,
    ) -> None:  # fmt: skip
        """Make a Job; with ``needs``, the millicores of its phases, each of which takes so many seconds."""
        template: Object = {
            "metadata": {"annotations": {"chaos/seconds": f"{seconds:g}"}},
            "spec": _spec(cpu, forever=False),
        }
        del template["spec"]["schedulerName"]
        spec: Object = {"class": cls, "completions": completions, "parallelism": parallelism, "template": template}
        if gang is not None:
            spec["gang"] = gang
        if needs:
            named = ",".join(f"p{index}={need}" for index, need in enumerate(needs))
            template["metadata"]["annotations"]["chaos/phases"] = named
            if mute:
                template["metadata"]["annotations"]["chaos/mute"] = ""
            length = {"seconds": seconds} if mute else {}
            spec["phases"] = [
                {"name": f"p{index}", "resources": {"cpu": f"{need}m"}, **length} for index, need in enumerate(needs)
            ]
        body = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        await self.until_made(self.jobs, body)

    async def service(self, name: str, replicas: int, cpu: str, limit: float = 0.0) -> None:
        """Make a Workload; with ``limit``, one whose p95 latency may be so many milliseconds."""
        spec = _spec(cpu, forever=True)
        del spec["schedulerName"]
        body = {
            "apiVersion": "cotide.dev/v1alpha1",
            "kind": "Workload",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "template": {"spec": spec}},
        }
        if limit:
            body["spec"]["qos"] = {"latencyP95Milliseconds": limit}
        await self.until_made(self.services, body)

    async def scale(self, name: str, replicas: int) -> None:
        await self.insist(lambda: self._client.patch(f"{self.services}/{name}", {"spec": {"replicas": replicas}}))

    async def until_made(self, path: str, body: Object) -> None:
        """Create an object of ours; its kind may not be served yet."""
        name = body["metadata"]["name"]
        while True:
            if await self.insist(lambda: self._client.create(path, body)) is not None:
                return
            if await self.insist(lambda: self._client.get(f"{path}/{name}")) is not None:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def node(self, name: str, cpu: int, labels: Mapping[str, str] = MappingProxyType({})) -> None:
        offered = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
        status = {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"name": name, "labels": dict(labels)}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
        await self.insist(lambda: self._client.create("/api/v1/nodes", body))
        # A real server closes a new node until a controller finds it ready.
        await self.change_node(name, {"taints": None})

    async def change_node(self, name: str, spec: Object) -> None:
        await self.insist(lambda: self._client.patch(f"/api/v1/nodes/{name}", {"spec": spec}))

    async def ready(self, name: str, *, ready: bool) -> None:
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        await self.insist(
            lambda: self._client.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [condition]}})
        )

    async def remove_node(self, name: str) -> None:
        """Delete a node; its pods go the way of all pods without one."""
        await self.insist(lambda: self._client.delete(f"/api/v1/nodes/{name}"))

    def may_take(self, pod: CheckedPod) -> bool:
        return pod.phase not in ENDED and not pod.leaving and pod.uid not in self._worked | self._checker.taken

    async def take(self, pod: CheckedPod) -> None:
        """Delete a pod at once."""
        self._checker.taken.add(pod.uid)
        self._served.add(pod.uid)
        await self._remove(pod)

    # What kubelets do.

    def _changed(self, plural: str, old: CheckedPod | Object | None, new: CheckedPod | Object | None) -> None:
        if self.closed:
            return
        if plural == "nodes":
            for pod in list(self._checker.pods.values()):
                self._serve(pod)
        elif isinstance(new, CheckedPod):
            self._serve(new)
            self._collect(new)
            if self._tidy and new.job and new.phase in ENDED and not new.leaving:
                self._do(self._sweep(new))

    def _serve(self, pod: CheckedPod) -> None:
        if pod.key.partition("/")[0] != self.namespace or not pod.node:
            if pod.leaving:
                self._do(self._remove(pod))
            return
        node = self._checker.nodes.get(pod.node)
        if node is None:
            if pod.uid not in self._removing:
                self._checker.taken.add(pod.uid)
                self._do(self._remove(pod))
        elif pod.leaving:
            if pod.uid not in self._stopping | self._removing:
                self._stopping.add(pod.uid)
                self._do(self._stop(pod))
        elif _is_ready(node) and pod.uid not in self._served and pod.phase == "Pending":
            self._served.add(pod.uid)
            self._do(self._run(pod))

    def _collect(self, pod: CheckedPod) -> None:
        """Delete a pod whose Job is no more, as the garbage collector does; the emulator has its own."""
        if pod.key.partition("/")[0] == self.namespace and self._checker.orphaned(pod) and not pod.leaving:
            self._do(self._sweep(pod))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.faults.append(error)

    async def _run(self, pod: CheckedPod) -> None:
        if not self.admits(pod):
            message = "Pod was rejected: Node didn't have enough resource: cpu"
            status = {"phase": "Failed", "reason": "OutOfcpu", "message": message}
            body: Object = {"metadata": {"uid": pod.uid}, "status": status}
            path = f"{self.pods}/{pod.key.partition('/')[2]}/status"
            await self.insist(lambda: self._client.patch(path, body))
            return
        await self._become(pod, "Running", lambda now: now.phase == "Pending" and not now.leaving)
        if pod.phased is not None and self.phased is not None:
            await self.phased(pod)
            return
        if pod.seconds is not None and not self.closed:
            self._due_after(pod)

    def _due_after(self, pod: CheckedPod) -> None:
        assert pod.seconds is not None
        loop = asyncio.get_running_loop()
        self._due[pod.uid] = loop.call_later(pod.seconds, lambda: self._do(self.finish(pod)))

    async def finish(self, pod: CheckedPod) -> None:
        """Let a pod succeed, unless it was taken, evicted or cut off before."""
        self._due.pop(pod.uid, None)
        while True:
            now = self._checker.pods.get(pod.key)
            if now is None or now.uid != pod.uid or now.leaving or now.phase in ENDED or not self._mine(now):
                return
            if not _is_ready(self._checker.nodes.get(now.node, {})):
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            self._worked.add(pod.uid)
            # At the very version that was looked at: an eviction meanwhile refuses this, and the pod fails instead.
            if await self.insist(lambda seen=now: self._write(seen, "Succeeded", seen.version)) is not None:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _stop(self, pod: CheckedPod) -> None:
        """Stop a pod with its grace: some have finished their work by then; then let it go."""
        lucky = pod.job and pod.phase == "Running" and pod.seconds is not None and self._mine(pod)
        done = lucky and random.Random(pod.key).random() < 0.3
        if done:
            self._worked.add(pod.uid)
        await self._become(pod, "Succeeded" if done else "Failed", lambda now: True)
        await self._remove(pod)

    async def _become(self, pod: CheckedPod, phase: str, still: Callable[[CheckedPod], bool]) -> None:
        """Write a phase at the very version that was looked at, unless the pod ended or is another by now."""
        while True:
            now = self._checker.pods.get(pod.key)
            if now is None or now.uid != pod.uid or now.phase in ENDED or not still(now):
                return
            if await self.insist(lambda seen=now: self._write(seen, phase, seen.version)) is not None:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _sweep(self, pod: CheckedPod) -> None:
        """Delete a pod that ended, as a user or a collector of old pods does."""
        name = pod.key.partition("/")[2]
        await self.insist(lambda: self._client.delete(f"{self.pods}/{name}", uid=pod.uid))

    def _mine(self, pod: CheckedPod) -> bool:
        return pod.uid not in self._checker.taken

    async def _write(self, pod: CheckedPod, phase: str, version: int | None = None) -> Object:
        metadata: Object = {"uid": pod.uid}
        if version is not None:
            metadata["resourceVersion"] = str(version)
        name = pod.key.partition("/")[2]
        status: Object = {"phase": phase}
        if self._checker.moves_online:  # who moves pods waits until others are ready
            kinds = ("PodScheduled", "Ready") if phase == "Running" else ("PodScheduled",)
            status["conditions"] = [{"type": kind, "status": "True"} for kind in kinds]
        return await self._client.patch(f"{self.pods}/{name}/status", {"metadata": metadata, "status": status})

    async def _remove(self, pod: CheckedPod) -> None:
        if pod.uid in self._removing:
            return
        self._removing.add(pod.uid)
        name = pod.key.partition("/")[2]
        await self.insist(lambda: self._client.delete(f"{self.pods}/{name}", grace_seconds=0, uid=pod.uid))


def _spec(cpu: str, forever: bool) -> Object:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {
        "schedulerName": "cotide",
        "restartPolicy": "Always" if forever else "Never",
        "containers": [container],
    }


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

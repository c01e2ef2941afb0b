"""deploy/rbac grants what the operator uses, and no more: it runs on a server that writes its requests down."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import aiohttp
import yaml
from repository import ROOT

from cotide_kube.credentials import Credentials
from cotide_operator.apis.crd_generation import RESOURCES, definition
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.settings import Settings
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.http.http_protocol import Request
from cotide_sim.apiserver.testing import running_server

DEADLINE_SECONDS = 30.0
RBAC: Final = ROOT / "deploy" / "rbac"
PODS = "/api/v1/namespaces/default/pods"
OURS = "/apis/cotide.dev/v1alpha1/namespaces/default"
TEMPLATE = {"spec": {"containers": [{"name": "work", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}}

Right = tuple[str, str, str]
"""API group, resource with subresource, verb."""

NOT_EXERCISED: Final = {
    ("", "pods/eviction", "create"),  # the overload monitor
    ("", "pods/resize", "patch"),  # Jobs with phases
    ("", "pods", "get"),  # after a binding or a creation whose answer was lost
    ("", "namespaces", "get"),  # only where the lease's namespace may be missing
    ("metrics.k8s.io", "pods", "list"),  # metricsSource: kubernetes
    ("", "events", "patch"),  # a repeated event
    ("", "persistentvolumeclaims", "patch"),  # claims that wait for their pod; so is the next
    ("", "persistentvolumes", "patch"),
    ("scheduling.x-k8s.io", "podgroups", "watch"),  # nobody serves them there; so are the next three
    ("scheduling.k8s.io", "workloads", "watch"),
    ("scheduling.k8s.io", "podgroups", "watch"),
    ("scheduling.k8s.io", "podgroups/status", "patch"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "list"),  # a roll-back to the version before this one
    ("apiextensions.k8s.io", "customresourcedefinitions", "watch"),
    ("cotide.dev", "jobs/finalizers", "update"),
    ("cotide.dev", "workloads/finalizers", "update"),  # asked for by an admission plugin, never called
}


class RightsUsed(Fault):
    """A fault that never strikes and writes down what it sees of the operator's requests."""

    def __init__(self) -> None:
        super().__init__(count=-1)
        self.rights: set[Right] = set()

    def matches(self, request: Request) -> bool:
        agent = request.headers.get("user-agent", "")
        right = right_of(request) if agent != "test" else None
        if right is not None:
            self.rights.add(right)
        return False


class User:
    """The test's own requests, told from the operator's by their user agent."""

    def __init__(self, url: str) -> None:
        self._session = aiohttp.ClientSession(url, headers={"User-Agent": "test"})

    async def __aenter__(self) -> User:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, method: str, path: str, body: dict[str, Any] | None, kind: str) -> dict[str, Any]:
        async with self._session.request(method, path, json=body, headers={"Content-Type": kind}) as answer:
            assert answer.ok, await answer.text()
            read: dict[str, Any] = await answer.json()
            return read

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.send("POST", path, body, "application/json")

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.send("PATCH", path, body, "application/merge-patch+json")

    async def items(self, path: str) -> Sequence[dict[str, Any]]:
        found: Sequence[dict[str, Any]] = (await self.send("GET", path, None, "application/json"))["items"]
        return found


PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/[^/]+/(?:namespaces/[^/]+/)?(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?$"
)


def right_of(request: Request) -> Right | None:
    """Return what RBAC would be asked for; None for paths that every user may read (discovery, version)."""
    path = request.path
    if re.match(r"^/api/v1/namespaces(/[^/]+)?$", path):
        verb = "get" if path.count("/") == 4 else "watch" if request.query.get("watch") else "list"
        return "", "namespaces", verb
    match = PATH.match(path)
    if match is None:
        return None
    resource = match["resource"] + (f"/{match['sub']}" if match["sub"] else "")
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    verb = verbs.get(request.method) or ("get" if match["name"] else "list")
    if verb == "list" and request.query.get("watch") in ("true", "1"):
        verb = "watch"
    return match["group"] or "", resource, verb


def granted() -> set[Right]:
    rights: set[Right] = set()
    for name in ("operator.yaml", "leader-election.yaml"):
        for document in yaml.safe_load_all((RBAC / name).read_text(encoding="utf-8")):
            for rule in document.get("rules", ()):
                rights |= {
                    (group, resource, verb)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return rights


async def until(what: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await what():
            await asyncio.sleep(0.02)


async def first_of(work: Awaitable[None], running: asyncio.Task[None]) -> None:
    """Wait for the work, or for the operator's own end, which is a failure worth reading at once."""
    working = asyncio.ensure_future(work)
    await asyncio.wait({working, running}, return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        working.cancel()
        await running
        raise AssertionError("the operator ended by itself")
    await working


async def test_the_operator_may_do_what_it_does_and_nothing_else() -> None:
    recorded = RightsUsed()
    async with running_server() as server, User(server.url) as client:
        for resource in RESOURCES:
            await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(resource))
        await client.create("/api/v1/namespaces", {"metadata": {"name": "cotide-system"}})
        ready = [{"type": "Ready", "status": "True"}]
        # What an earlier operator published, and this one takes away: publishing is off.
        capacity = {"cpu": "8", "memory": "8Gi", "pods": "110", "cotide.dev/reclaimed-cpu": "1000"}
        node = {
            "metadata": {"name": "n1"},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": ready},
        }
        await client.create("/api/v1/nodes", node)
        server.faults.add(recorded)
        operator = Operator(Settings(), Options(metrics_port=0), Credentials(server.url))
        stop = asyncio.Event()
        running = asyncio.create_task(operator.run(stop))
        try:
            await first_of(work_through(client), running)
            url = f"http://127.0.0.1:{operator.health.port}/debug/board"
            somebody = {"Authorization": "Bearer somebody"}
            async with aiohttp.ClientSession() as session, session.get(url, headers=somebody) as decisions:
                assert decisions.status == 200

            async def all_used() -> bool:  # some watches are opened while the work is done already
                return granted() - NOT_EXERCISED <= recorded.rights

            with contextlib.suppress(TimeoutError):  # what is missing is named below
                await until(all_used)
        finally:
            stop.set()
            await asyncio.gather(running, return_exceptions=True)
    used = {right for right in recorded.rights if right[1] != "namespaces" or right[2] != "create"}
    assert used - granted() == set(), "the operator needs rights that deploy/rbac does not grant"
    assert granted() - used - NOT_EXERCISED == set(), "deploy/rbac grants rights that nobody uses"


async def work_through(client: User) -> None:
    """Let the operator do all kinds of its work, playing the kubelet."""

    async def make(kind: str, name: str, spec: dict[str, Any]) -> None:
        await client.create(f"{OURS}/{kind}", {"metadata": {"name": name}, "spec": spec})

    async def on_node(name: str) -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in await client.items(PODS)}
        return bool(pods.get(name, {}).get("spec", {}).get("nodeName"))

    adopted = {"metadata": {"name": "old", "labels": {"app": "old"}}, "spec": TEMPLATE["spec"]}
    await client.create(PODS, adopted)
    await make("jobs", "count", {"template": TEMPLATE})
    await make("workloads", "web", {"template": TEMPLATE})
    await make("workloads", "old", {"selector": {"matchLabels": {"app": "old"}}})
    huge = {"spec": {"containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "100"}}}]}}
    await make("jobs", "huge", {"template": huge})
    await until(lambda: on_node("count-0"))
    await until(lambda: on_node("web-0"))
    await client.patch(f"{PODS}/count-0/status", {"status": {"phase": "Succeeded"}})
    await client.patch(f"{OURS}/workloads/web", {"spec": {"replicas": 0}})

    async def done() -> bool:
        jobs = {job["metadata"]["name"]: job.get("status") or {} for job in await client.items(f"{OURS}/jobs")}
        pods = {pod["metadata"]["name"]: pod for pod in await client.items(PODS)}
        waiting = pods.get("huge-0")
        return (
            waiting is not None
            and jobs["count"].get("phase") == "Succeeded"
            and "cotide.dev/workload" in pods["old"]["metadata"]["labels"]
            and "cotide.dev/decision" in waiting["metadata"].get("annotations", {})
            and any(one["type"] == "PodScheduled" for one in waiting["status"].get("conditions", ()))
            and ("web-0" not in pods or "deletionTimestamp" in pods["web-0"]["metadata"])
            and bool(await client.items("/api/v1/namespaces/default/events"))
        )

    await until(done)
    await client.send("DELETE", f"{OURS}/jobs/huge", None, "application/json")

    async def let_go() -> bool:  # whether its Job is gone is asked of the API server itself
        return all(pod["metadata"]["name"] != "huge-0" for pod in await client.items(PODS))

    await until(let_go)

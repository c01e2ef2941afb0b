"""kopf in its thread, on the embedded API server: asks for looks, repeats those that fail, and hardly writes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
import requests

from cotide_core.errors import ClusterError
from cotide_kube.credentials import Credentials, FileToken, StaticToken, load_credentials
from cotide_operator.apis.crd_generation import RESOURCES, definition
from cotide_operator.controllers import kopf_thread
from cotide_operator.controllers.kopf_handlers import Bridge, build_settings, run_kopf
from cotide_operator.controllers.kopf_session import kopf_session
from cotide_operator.controllers.kopf_thread import PROBE_SECONDS, KopfSupervisor, KopfThread
from cotide_operator.observability.metrics import Metrics
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.testing import ThreadedServer, server_in_thread

DEADLINE_SECONDS = 20.0
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEMPLATE = {"spec": {"containers": [{"name": "work", "image": "none"}]}}


class Api:
    """A few plain requests; the test is no place for the client under test elsewhere."""

    def __init__(self, url: str, token: str = "", authority: Path | None = None) -> None:
        self.url, self._verify = url, str(authority) if authority else True
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def send(self, method: str, path: str, body: dict[str, Any] | None = None, kind: str = "application/json") -> Any:
        headers = {"Content-Type": kind, **self._headers}
        answer = requests.request(method, self.url + path, json=body, headers=headers, timeout=10, verify=self._verify)
        assert answer.ok, answer.text
        return answer.json()

    def make_crds(self, *, refusing: bool = True) -> None:
        for resource in RESOURCES:
            made = definition(resource)
            if not refusing:  # definitions of an older version: what they let pass must be told all the same
                schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
                schema["properties"]["spec"].pop("x-kubernetes-validations", None)
            self.send("POST", DEFINITIONS, made)


class Reconciliations:
    """Stands for the controllers: writes down what is asked for, and fails as it is told."""

    def __init__(self) -> None:
        self.taken: queue.Queue[tuple[str, str, str]] = queue.Queue()
        self.failures: list[Exception] = []

    async def reconcile(self, kind: str, key: str, version: str = "", *, deleted: bool = False) -> None:
        self.taken.put((kind, key, "deleted" if deleted else version))
        if self.failures:
            raise self.failures.pop(0)

    async def health(self) -> dict[str, int]:
        return {"waiting": self.taken.qsize()}

    def next(self) -> tuple[str, str]:
        kind, key, _ = self.taken.get(timeout=DEADLINE_SECONDS)
        return kind, key


@contextmanager
def kopf_on(
    server: ThreadedServer, asked: Reconciliations, credentials: Credentials | None = None
) -> Iterator[KopfThread]:
    loop = asyncio.new_event_loop()  # the operator's
    operator = threading.Thread(target=loop.run_forever)
    operator.start()
    thread = KopfThread(asked, credentials or Credentials(server.url), loop)
    thread.start()
    try:
        assert thread.wait_ready(DEADLINE_SECONDS), thread.fault
        yield thread
    finally:
        assert thread.stop(DEADLINE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        operator.join()
        assert thread.fault is None


def resource(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "cotide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
WORKLOADS = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"


def test_creation_update_and_deletion_lead_to_looks_and_to_no_write() -> None:
    asked = Reconciliations()
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds()
        api.send("POST", JOBS, resource("Job", "early", template=TEMPLATE))
        with kopf_on(server, asked):
            assert asked.next() == ("jobs", "default/early")  # was there before kopf
            made = api.send("POST", JOBS, resource("Job", "count", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/count")
            api.send("POST", WORKLOADS, resource("Workload", "web", template=TEMPLATE))
            assert asked.next() == ("workloads", "default/web")
            now = api.send("GET", f"{JOBS}/count")
            assert now["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
            assert "finalizers" not in now["metadata"]
            merge = "application/merge-patch+json"
            changed = api.send("PATCH", f"{JOBS}/count", {"spec": {"priority": 7}}, merge)
            assert asked.next() == ("jobs", "default/count")
            again = api.send("GET", f"{JOBS}/count")
            assert again["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
            api.send("DELETE", f"{JOBS}/count")
            assert asked.next() == ("jobs", "default/count")
        assert asked.taken.empty()


def test_a_kopf_that_starts_while_the_server_shows_no_resources_of_ours_watches_them_soon() -> None:
    """An API server that has just started shows them later; kopf would start without them and never look again."""
    asked = Reconciliations()
    with server_in_thread() as server:
        Api(server.url).make_crds()
        early = Fault(status=404, path="^/apis/cotide.dev/v1alpha1$")
        server.call(lambda: server.server.faults.add(early))
        with kopf_on(server, asked):
            Api(server.url).send("POST", JOBS, resource("Job", "count", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/count")


def test_definitions_that_change_while_discovery_fails_do_not_end_kopf() -> None:
    asked = Reconciliations()
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds()
        with kopf_on(server, asked):
            api.send("POST", JOBS, resource("Job", "early", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/early")
            server.call(lambda: server.server.faults.add(Fault(status=404, path="^/apis$", count=-1)))
            other = definition(RESOURCES[0])
            other["metadata"]["name"] = "others.example.com"
            other["spec"] |= {"group": "example.com", "names": {"plural": "others", "kind": "Other"}}
            api.send("POST", DEFINITIONS, other)
            api.send("POST", JOBS, resource("Job", "late", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/late")


def test_definitions_that_are_made_again_are_watched_as_before() -> None:
    asked = Reconciliations()
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds()
        with kopf_on(server, asked):
            api.send("POST", JOBS, resource("Job", "early", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/early")
            for one in RESOURCES:
                api.send("DELETE", f"{DEFINITIONS}/{definition(one)['metadata']['name']}")
            assert asked.next() == ("jobs", "default/early")  # it went with its definition
            api.make_crds()
            api.send("POST", JOBS, resource("Job", "late", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/late")


def test_a_look_at_what_goes_that_trips_us_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    asked = Reconciliations()
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds()
        with kopf_on(server, asked):
            api.send("POST", JOBS, resource("Job", "count", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/count")
            asked.failures = [RuntimeError("tripped")]
            api.send("DELETE", f"{JOBS}/count")
            assert asked.next() == ("jobs", "default/count")
            api.send("POST", JOBS, resource("Job", "next", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/next")
    assert "jobs default/count is deleted, and its reconciliation failed: RuntimeError('tripped')" in caplog.text


def test_a_status_change_leads_to_no_look() -> None:
    asked = Reconciliations()
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds()
        with kopf_on(server, asked):
            api.send("POST", JOBS, resource("Job", "count", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/count")
            merge = "application/merge-patch+json"
            api.send("PATCH", f"{JOBS}/count/status", {"status": {"phase": "Queued"}}, merge)
            api.send("POST", JOBS, resource("Job", "after", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/after")


def test_a_spec_that_cannot_be_followed_becomes_an_event_in_the_words_of_its_rule() -> None:
    asked = Reconciliations()
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds(refusing=False)
        with kopf_on(server, asked):
            api.send("POST", WORKLOADS, resource("Workload", "web", template=TEMPLATE, selector={}))
            assert asked.next() == ("workloads", "default/web")
            event = wait_for_event(api)
        assert (event["reason"], event["type"]) == ("Misconfigured", "Warning")
        assert "and not both" in event["message"]
        assert event["involvedObject"]["name"] == "web"


def wait_for_event(api: Api) -> dict[str, Any]:
    """Follow the watch of events: it answers as soon as there is one."""
    url = f"{api.url}/api/v1/namespaces/default/events?watch=true&timeoutSeconds={DEADLINE_SECONDS:g}"
    with requests.get(url, stream=True, timeout=DEADLINE_SECONDS) as answer:
        for line in answer.iter_lines():
            if line:
                event: dict[str, Any] = json.loads(line)["object"]
                return event
    pytest.fail("no event came")


def test_tls_and_a_token_that_is_replaced_are_no_obstacle(tmp_path: Path) -> None:
    asked = Reconciliations()
    (tmp_path / "token").write_text("outdated")
    with server_in_thread(tls=True, token="right") as server:
        known = load_credentials(str(server.write_kubeconfig(tmp_path / "config")))
        authority = tmp_path / "ca.pem"
        authority.write_bytes(known.certificate_authority or b"")
        api = Api(server.url, "right", authority)
        api.make_crds()
        token = FileToken(tmp_path / "token")
        token()  # the old one is read, then replaced on disk
        (tmp_path / "token").write_text("right")
        credentials = Credentials(server.url, token=token, certificate_authority=known.certificate_authority)
        api.send("POST", JOBS, resource("Job", "count", template=TEMPLATE))
        with kopf_on(server, asked, credentials):
            assert asked.next() == ("jobs", "default/count")


def test_a_server_that_refuses_us_does_not_keep_kopf_from_stopping() -> None:
    with server_in_thread(token="right") as server:
        with kopf_on(server, Reconciliations(), Credentials(server.url, token=StaticToken("Bearer wrong"))) as thread:
            pass
        assert not thread.alive


def test_a_look_that_fails_is_tried_again_by_kopf_and_the_only_write_is_the_time_of_that() -> None:
    asked = Reconciliations()
    asked.failures = [ClusterError("the API server is unreachable"), ClusterError("still")]
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds()
        with kopf_on(server, asked):
            made = api.send("POST", JOBS, resource("Job", "count", template=TEMPLATE))
            for _ in range(3):  # twice it fails, then it is done
                assert asked.next() == ("jobs", "default/count")
        now = api.send("GET", f"{JOBS}/count")
    assert now["status"].pop("lastRetryTime") > made["metadata"]["creationTimestamp"]
    assert not any(now["status"].values()), "what the schema fills in"
    assert {**now["metadata"], "resourceVersion": ""} == {**made["metadata"], "resourceVersion": ""}
    assert asked.taken.empty()


def test_a_look_that_trips_us_is_given_up_until_the_object_changes() -> None:
    asked = Reconciliations()
    asked.failures = [ZeroDivisionError("division by zero")]
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds()
        with kopf_on(server, asked):
            api.send("POST", JOBS, resource("Job", "bad", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/bad")
            api.send("POST", JOBS, resource("Job", "good", template=TEMPLATE))
            assert asked.next() == ("jobs", "default/good")
            api.send("PATCH", f"{JOBS}/bad", {"spec": {"priority": 7}}, "application/merge-patch+json")
            assert asked.next() == ("jobs", "default/bad")


@pytest.mark.parametrize(("observed", "reason"), [(None, "create"), (1, "resume"), (0, "update")])
def test_what_happened_while_no_operator_ran_is_told_by_the_status(observed: int | None, reason: str) -> None:
    storage = build_settings().persistence.diffbase_storage
    status = {} if observed is None else {"observedGeneration": observed}
    raw = {"metadata": {"uid": "u", "name": "count", "generation": 1}, "spec": {"priority": 7}, "status": status}
    body = kopf.Body(raw)  # type: ignore[arg-type]  # what an API server sends
    old, new = storage.fetch(body=body), storage.build(body=body)
    assert ("create" if old is None else "resume" if old == new else "update") == reason


async def test_kopfs_probe_asks_the_operators_loop() -> None:
    with server_in_thread() as server:
        Api(server.url).make_crds()
        thread = KopfThread(Reconciliations(), Credentials(server.url), asyncio.get_running_loop())
        thread.start()
        try:
            assert await asyncio.to_thread(thread.wait_ready, DEADLINE_SECONDS)
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not await thread.well():  # kopf serves its endpoint a moment after it is ready
                    await asyncio.sleep(0.05)
        finally:
            assert await asyncio.to_thread(thread.stop, DEADLINE_SECONDS)
        assert not await thread.well()


async def test_a_kopf_that_runs_and_does_not_answer_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, now, answers = KopfSupervisor(Credentials("http://127.0.0.1:9"), Metrics()), [0.0], [True, False, False]
    stuck: list[bool] = []

    class Running:
        ready = True
        alive = property(lambda _: bool(answers))

        async def well(self) -> bool:
            return answers.pop(0)

    async def sleep(_: float) -> None:
        now[0] += PROBE_SECONDS
        stuck.append(supervisor.stuck)

    monkeypatch.setattr(kopf_thread, "SILENT_SECONDS", 1.5 * PROBE_SECONDS)
    monkeypatch.setattr(kopf_thread.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(kopf_thread.asyncio, "sleep", sleep)
    await supervisor._watch(Running())  # type: ignore[arg-type]  # as much of one as is looked at
    assert stuck == [False, True, True]  # 10, 20 and 30 s after its one good answer, where 15 s are too long
    assert not supervisor.stuck, "it has ended, and is started again"


async def test_kopf_connects_as_the_operator_does() -> None:
    session = kopf_session(Credentials("https://example:6443", token=StaticToken("Bearer abc"), insecure=True))
    async with session.aiohttp_session as http:
        assert (session.server, http.headers["Authorization"]) == ("https://example:6443", "Bearer abc")


def test_kopf_starts_for_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.delenv("POD_ID", raising=False)
    with server_in_thread() as server:
        Api(server.url).make_crds()
        with kopf_on(server, Reconciliations()) as thread:
            assert thread.ready


@pytest.mark.parametrize(("error", "lines"), [(aiohttp.ClientConnectionError("closed"), 0), (ValueError("ours"), 1)])
def test_a_request_that_kopf_left_behind_when_it_stopped_is_no_traceback(
    error: Exception, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails() -> None:
        raise error

    async def leaves_one_behind(**_: Any) -> None:
        left = asyncio.ensure_future(fails())
        await asyncio.wait([left])
        del left
        gc.collect()

    gc.collect()  # what others left behind is none of this one's lines
    caplog.clear()
    monkeypatch.setattr(kopf, "operator", leaves_one_behind)
    with contextlib.closing(asyncio.new_event_loop()) as operators:
        run_kopf(Bridge(Reconciliations(), operators), Credentials("http://127.0.0.1:9"))
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == lines


def test_a_session_of_which_kopf_made_no_request_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[kopf.AiohttpSession] = []

    async def stops_once_it_has_logged_in(registry: kopf.OperatorRegistry, **_: Any) -> None:
        login = next(handler for handler in registry._activities.get_all_handlers() if handler.fn.__name__ == "login")
        sessions.append(await login.fn())

    monkeypatch.setattr(kopf, "operator", stops_once_it_has_logged_in)
    with contextlib.closing(asyncio.new_event_loop()) as operators:
        run_kopf(Bridge(Reconciliations(), operators), Credentials("http://127.0.0.1:9"))
    assert [session.aiohttp_session.closed for session in sessions] == [True]

"""kopf in its thread, on the embedded API server: hands keys over, writes nothing, names faults in events."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from cotide_kube.credentials import Credentials, FileToken, StaticToken, load_credentials
from cotide_operator.apis.crd_generation import RESOURCES, definition
from cotide_operator.controllers.kopf_handlers import KopfThread, start_kopf
from cotide_operator.controllers.kopf_session import kopf_session
from cotide_sim.apiserver.testing import ThreadedServer, server_in_thread

DEADLINE_SECONDS = 20.0
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
            self.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made)


class Keys:
    """Where kopf hands over: the test's side of the thread."""

    def __init__(self) -> None:
        self.taken: queue.Queue[tuple[str, str, str]] = queue.Queue()

    def __call__(self, kind: str, key: str) -> bool:
        self.taken.put((kind, key, threading.current_thread().name))
        return True

    def next(self) -> tuple[str, str]:
        kind, key, _ = self.taken.get(timeout=DEADLINE_SECONDS)
        return kind, key


@contextmanager
def kopf_on(server: ThreadedServer, keys: Keys, credentials: Credentials | None = None) -> Iterator[KopfThread]:
    thread = start_kopf(keys, credentials or Credentials(server.url))
    try:
        assert thread.wait_ready(DEADLINE_SECONDS), thread.fault
        yield thread
    finally:
        assert thread.stop(DEADLINE_SECONDS)
        assert thread.fault is None


def resource(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "cotide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
WORKLOADS = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"


def test_create_update_and_delete_are_handed_over_from_kopfs_own_thread_without_a_write() -> None:
    keys = Keys()
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds()
        api.send("POST", JOBS, resource("Job", "early", template=TEMPLATE))
        with kopf_on(server, keys):
            assert keys.next() == ("jobs", "default/early")  # was there before kopf
            made = api.send("POST", JOBS, resource("Job", "count", template=TEMPLATE))
            assert keys.next() == ("jobs", "default/count")
            api.send("POST", WORKLOADS, resource("Workload", "web", template=TEMPLATE))
            assert keys.next() == ("workloads", "default/web")
            now = api.send("GET", f"{JOBS}/count")
            assert now["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
            assert "finalizers" not in now["metadata"]
            merge = "application/merge-patch+json"
            changed = api.send("PATCH", f"{JOBS}/count", {"spec": {"priority": 7}}, merge)
            assert keys.next() == ("jobs", "default/count")
            again = api.send("GET", f"{JOBS}/count")
            assert again["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
            api.send("DELETE", f"{JOBS}/count")
            assert keys.next() == ("jobs", "default/count")
        assert keys.taken.empty()


def test_a_status_change_is_not_handed_over() -> None:
    keys = Keys()
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds()
        with kopf_on(server, keys):
            api.send("POST", JOBS, resource("Job", "count", template=TEMPLATE))
            assert keys.next() == ("jobs", "default/count")
            merge = "application/merge-patch+json"
            api.send("PATCH", f"{JOBS}/count/status", {"status": {"phase": "Queued"}}, merge)
            api.send("POST", JOBS, resource("Job", "after", template=TEMPLATE))
            assert keys.next() == ("jobs", "default/after")


def test_a_spec_that_cannot_be_followed_becomes_an_event_in_the_words_of_its_rule() -> None:
    keys = Keys()
    with server_in_thread() as server:
        api = Api(server.url)
        api.make_crds(refusing=False)
        with kopf_on(server, keys):
            api.send("POST", WORKLOADS, resource("Workload", "web", template=TEMPLATE, selector={}))
            assert keys.next() == ("workloads", "default/web")
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
    keys = Keys()
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
        with kopf_on(server, keys, credentials):
            assert keys.next() == ("jobs", "default/count")


def test_a_server_that_refuses_us_does_not_keep_kopf_from_stopping() -> None:
    with server_in_thread(token="right") as server:
        thread = start_kopf(Keys(), Credentials(server.url, token=StaticToken("Bearer wrong")))
        try:
            assert thread.wait_ready(DEADLINE_SECONDS)
        finally:
            assert thread.stop(DEADLINE_SECONDS)
        assert not thread.alive


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
        with kopf_on(server, Keys()) as thread:
            assert thread.ready

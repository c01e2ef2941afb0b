"""Node actuators and the carrying out of a plan: answers, time-outs, the book before the deed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web
from manifests import pod_manifest

from cotide_core.errors import ClusterError, InputError
from cotide_core.provisioning.node_orders import Action, Answer, NodeInstruction, NodeView, OrderBook
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.provisioning.actuators import CommandActuator, DryRun, WebhookActuator
from cotide_operator.provisioning.carrying import CONFIG_MAP, KEY, BookStore, carry_out
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.apiserver.testing import running_server

START = NodeInstruction(Action.START, "capacity-a-1", "a")
CANCEL = NodeInstruction(Action.CANCEL, "capacity-a-1", "a")


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("code", "started", "cancelled"),
    [
        ("pass", Answer.ACCEPTED, Answer.GONE),
        ("raise SystemExit(3)", Answer.FAILED, Answer.FAILED),
        ("raise SystemExit(4)", Answer.GONE, Answer.GONE),
        ("raise SystemExit(1)", Answer.UNKNOWN, Answer.UNKNOWN),
    ],
)
async def test_a_command_answers_by_its_exit_code(code, started, cancelled):
    actuator = CommandActuator(python(code), 20.0)
    assert await actuator.do(START) is started
    assert await actuator.do(CANCEL) is cancelled


async def test_a_command_is_told_what_to_do_and_no_answer_in_time_or_no_program_is_no_answer(tmp_path):
    file = tmp_path / "told"
    code = f"import sys; open({str(file)!r}, 'w').write(' '.join(sys.argv[1:]))"
    await CommandActuator(python(code), 20.0).do(START)
    assert file.read_text() == "start capacity-a-1 a"
    assert await CommandActuator(python("import time; time.sleep(600)"), 0.05).do(START) is Answer.UNKNOWN
    assert await CommandActuator((str(tmp_path / "nothing"),), 1.0).do(START) is Answer.UNKNOWN


async def test_a_command_that_does_not_end_in_time_takes_what_it_has_started_with_it(tmp_path, monkeypatch):
    """A script that is killed leaves its curl behind, and it is asked again: they pile up in the operator's pod."""
    file = tmp_path / "child"

    async def timed_out(work, seconds):
        work.close()
        while not file.exists():
            await asyncio.sleep(0.01)
        raise TimeoutError

    monkeypatch.setattr(asyncio, "wait_for", timed_out)
    script = f"sleep 600 & echo $! > {file}.new; mv {file}.new {file}; wait"
    assert await CommandActuator(("sh", "-c", script), 600.0).do(START) is Answer.UNKNOWN
    child = Path(f"/proc/{file.read_text().strip()}/stat")
    async with asyncio.timeout(10.0):
        while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":  # nobody may wait for it
            await asyncio.sleep(0.01)


async def test_why_there_is_no_answer_is_told_once_a_minute(tmp_path, caplog):
    missing = CommandActuator((str(tmp_path / "nothing"),), 1.0)
    for _ in range(2):
        await missing.do(START)
    await CommandActuator(python("raise SystemExit(1)"), 20.0).do(CANCEL)
    async with aiohttp.ClientSession() as session:
        await WebhookActuator(session, "http://127.0.0.1:1/", 5.0).do(START)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert said[0].endswith(f"start capacity-a-1, which is asked again: {tmp_path}/nothing: No such file or directory")
    assert said[1].endswith("ended with exit code 1")
    assert "127.0.0.1:1" in said[2]


async def test_a_command_or_address_that_no_system_takes_is_no_answer(caplog):
    assert await CommandActuator(("switch\0node",), 1.0).do(START) is Answer.UNKNOWN
    async with aiohttp.ClientSession() as session:
        assert await WebhookActuator(session, f"http://{'h' * 64}/", 1.0).do(START) is Answer.UNKNOWN
    assert ["embedded null byte" in caplog.text, "idna" in caplog.text] == [True, True]


async def test_a_webhook_gets_the_order_as_its_key_and_answers_by_status():
    seen, codes = [], iter((200, 410, 422, 500, 200, 200))

    async def hook(request: web.Request) -> web.Response:
        seen.append((request.headers["Idempotency-Key"], orjson.loads(await request.read())))
        return web.Response(status=next(codes))

    app = web.Application()
    app.router.add_post("/nodes", hook)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:
        actuator = WebhookActuator(session, f"http://127.0.0.1:{port}/nodes", 5.0)
        assert [await actuator.do(START) for _ in range(4)] == [
            Answer.ACCEPTED, Answer.GONE, Answer.FAILED, Answer.UNKNOWN,
        ]  # fmt: skip
        for uid in ("u", "v"):  # the same machine in the morning and in the evening
            await actuator.do(NodeInstruction(Action.STOP, "n", "a", uid))
        await runner.cleanup()
        assert await actuator.do(START) is Answer.UNKNOWN, "nobody is there"
    assert seen[0] == ("start:capacity-a-1", {"action": "start", "subject": "capacity-a-1", "kind": "a"})
    assert [key for key, _ in seen[4:]] == ["stop:n:u", "stop:n:v"], "who knows a key does nothing for it again"


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[ApiServer, KubeClient]]:
    async with running_server() as server, KubeClient(Credentials(server.url), timeout_seconds=5) as client:
        yield server, client


class Spy:
    """Answers as told, and keeps what the stored book held when it was asked."""

    def __init__(self, client: KubeClient, answer: Answer) -> None:
        self.client, self.answer, self.books, self.done = client, answer, [], []

    async def do(self, instruction: NodeInstruction) -> Answer:
        stored = await self.client.get(f"/api/v1/namespaces/default/configmaps/{CONFIG_MAP}")
        self.books.append(OrderBook.from_data(orjson.loads(stored["data"][KEY])))
        self.done.append(instruction)
        return self.answer


async def turn(client, actuator, wanted, nodes=(), now=0.0, **rest):
    store = BookStore(client, "default", lambda: "x")
    return await carry_out(store, client, actuator, wanted, nodes, now, boot_deadline_seconds=600.0, **rest)


async def test_an_order_stands_in_the_book_before_it_is_sent_and_a_restart_sends_no_second(cluster):
    _, client = cluster
    spy = Spy(client, Answer.ACCEPTED)
    await turn(client, spy, {"a": 2})
    assert [one.subject for one in spy.done] == ["capacity-x-a-1", "capacity-x-a-2"]
    assert {order.id for order in spy.books[0].orders} == {"capacity-x-a-1", "capacity-x-a-2"}
    again = Spy(client, Answer.ACCEPTED)  # another process, which knows what is written and nothing else
    await turn(client, again, {"a": 2}, now=60.0)
    assert again.done == []


async def test_a_dry_run_tells_and_writes_nothing(cluster):
    _, client = cluster
    dry = DryRun()
    assert [one.subject for one in await turn(client, dry, {"a": 1}, dry_run=True)] == ["capacity-x-a-1"]
    assert dry.instructions == []
    assert await client.list("/api/v1/namespaces/default/configmaps") == []


async def test_a_book_that_somebody_deleted_is_followed_by_one_with_other_ids(cluster):
    _, client = cluster
    marks = iter(("x", "y"))
    for expected in ("capacity-x-a-1", "capacity-y-a-1"):
        spy, store = Spy(client, Answer.ACCEPTED), BookStore(client, "default", lambda: next(marks))
        await carry_out(store, client, spy, {"a": 1}, (), 0.0, boot_deadline_seconds=600.0)
        assert [one.subject for one in spy.done] == [expected]
        await client.delete(f"/api/v1/namespaces/default/configmaps/{CONFIG_MAP}")


async def test_a_book_that_is_deleted_while_it_is_kept_is_written_anew_with_what_is_on_its_way(cluster):
    _, client = cluster
    store = BookStore(client, "default", lambda: "x")
    book, _ = (await store.load()).step({"a": 1}, [], 0.0, 600.0)
    await store.save(book)
    await client.delete(f"/api/v1/namespaces/default/configmaps/{CONFIG_MAP}")
    book, _ = book.step({"a": 2}, [], 60.0, 600.0)
    await store.save(book)
    assert await BookStore(client, "default").load() == book, "forgotten, the first would be ordered twice"


async def test_an_unreadable_book_is_no_empty_one(cluster):
    _, client = cluster
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": {KEY: "[]"}}
    await client.create("/api/v1/namespaces/default/configmaps", body)
    with pytest.raises(InputError, match="can't be read"):
        await turn(client, DryRun(), {"a": 1})


async def test_of_two_who_write_at_once_one_is_refused_and_sends_nothing(cluster):
    _, client = cluster
    await turn(client, Spy(client, Answer.ACCEPTED), {"a": 1})
    early = BookStore(client, "default")
    book = await early.load()
    await turn(client, Spy(client, Answer.ACCEPTED), {"a": 2})
    with pytest.raises(ClusterError, match="nothing was sent"):
        await early.save(book)


async def test_a_node_is_cordoned_through_the_api_and_stopped_once_it_is_seen_empty(cluster):
    _, client = cluster
    await client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    await turn(client, DryRun(), {"a": 0}, [NodeView("n", "a")])
    assert (await client.get("/api/v1/nodes/n"))["spec"]["unschedulable"] is True
    spy = Spy(client, Answer.ACCEPTED)
    await turn(client, spy, {"a": 0}, [NodeView("n", "a", cordoned=True)], now=60.0)
    assert spy.done == [NodeInstruction(Action.STOP, "n", "a")]


async def test_no_node_is_stopped_that_got_a_pod_or_was_uncordoned_while_the_plan_was_made(cluster):
    _, client = cluster
    for name in ("open", "busy"):
        spec = {"unschedulable": True} if name == "busy" else {}
        await client.create(
            "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
        )
    late = pod_manifest("late")
    late["spec"]["nodeName"] = "busy"
    await client.create("/api/v1/namespaces/default/pods", late)
    book = OrderBook("capacity-x", draining=("open", "busy", "gone"))
    store = BookStore(client, "default", lambda: "x")
    await store.load()
    await store.save(book)
    spy = Spy(client, Answer.ACCEPTED)
    seen = [NodeView(name, "a", cordoned=True) for name in book.draining]
    assert await turn(client, spy, {"a": 0}, seen) == ()
    assert spy.done == []


async def test_a_node_that_somebody_opens_while_others_are_asked_for_is_not_stopped(cluster):
    """An order may take as long as its timeout to be answered; by then a service's pod is on the node."""
    _, client = cluster
    await client.create(
        "/api/v1/nodes",
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"unschedulable": True}},
    )
    store = BookStore(client, "default", lambda: "x")
    await store.load()
    await store.save(OrderBook("capacity-x", draining=("n",)))

    class Slow(Spy):
        async def do(self, instruction: NodeInstruction) -> Answer:
            if instruction.action is Action.START:
                await self.client.patch("/api/v1/nodes/n", {"spec": {"unschedulable": None}})
                await self.client.create("/api/v1/namespaces/default/pods", pod_manifest("p", spec={"nodeName": "n"}))
            return await super().do(instruction)

    slow = Slow(client, Answer.ACCEPTED)
    sent = await turn(client, slow, {"a": 0, "b": 1}, [NodeView("n", "a", cordoned=True)])
    assert [one.action for one in slow.done] == [Action.START]
    assert [one.action for one in sent] == [Action.START]
    assert (await BookStore(client, "default").load()).stopping == (), "nobody told its machine to go"


async def test_a_node_that_is_gone_or_refused_keeps_no_machine_from_being_ordered(cluster, monkeypatch):
    _, client = cluster
    for name in ("fine", "refused"):
        await client.create(
            "/api/v1/nodes",
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"unschedulable": True}},
        )
    patch = client.patch

    async def refuses_one(path: str, body: object) -> object:
        if path.endswith("/refused"):
            raise ApiError(403, "Forbidden", "not that one", f"PATCH {path}")
        return await patch(path, body)

    monkeypatch.setattr(client, "patch", refuses_one)
    book = OrderBook("capacity-x", opening=("gone", "refused", "fine"))
    store = BookStore(client, "default", lambda: "x")
    await store.load()
    await store.save(book)
    spy = Spy(client, Answer.ACCEPTED)
    seen = [NodeView(name, "a", cordoned=True) for name in book.opening]
    with pytest.raises(ClusterError, match=r"refused.*not that one.*the rest was sent"):
        await turn(client, spy, {"a": 3, "b": 1}, seen)
    assert [one.action for one in spy.done] == [Action.START]
    written = await BookStore(client, "default").load()
    assert written.opening == ("refused",), "it is asked for in the next turn"
    assert [order.accepted for order in written.orders] == [True]

"""`cotide profile` from a user's chair: on this machine, on the embedded server, and beside a Prometheus."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from control_plane import free_port
from kubernetes.client.exceptions import ApiException
from prometheus_stand_in import query_of, stand_in, vector

from cotide_core.errors import ClusterError, CotideError, InputError
from cotide_lab.inputs.training_data import completion_from_csv, qos_from_csv
from cotide_lab.predictors.profiling.design import Cell, Rule
from cotide_lab.predictors.profiling.windows import JobKind, Window
from cotide_lab.profile import cgroups
from cotide_lab.profile.cluster_jobs import ClusterMachine
from cotide_lab.profile.journal import Journal
from cotide_lab.profile.local_machine import LocalMachine
from cotide_lab.profile.passive import Alternation, Watch, mix_of_pods, watch
from cotide_lab.profile.plan import BatchJob, Plan
from cotide_lab.profile.profile_command import command, read_job
from cotide_sim.apiserver.testing import ThreadedServer

SERVICE = """
import socketserver

class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        for _ in self.rfile:
            self.wfile.write(b"+PONG\\r\\n")

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True

Server(("127.0.0.1", PORT), Answer).serve_forever()
"""
SLEEPER = JobKind("sleep", 7, 500)


def profile(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, standalone_mode=False)


@pytest.fixture
def service(tmp_path: Path) -> tuple[str, str]:
    """Return the target and the command of a small real server."""
    port = free_port()
    path = tmp_path / "service.py"
    path.write_text(SERVICE.replace("PORT", str(port)))
    return f"tcp://127.0.0.1:{port}", f"exec {sys.executable} {path}"


def campaign(service: tuple[str, str], out: Path, *options: str) -> Result:
    target, start = service
    return profile(
        "active", "--target", target, "--service-command", start, "--rates", "50,100", "--out", str(out),
        "--job", "sleep:7:500=sleep 0.02", "--window-seconds", "0.3", "--warm-up-seconds", "0", "--windows", "2",
        "--most-windows", "2", "-o", "json", *options,
    )  # fmt: skip


def test_a_campaign_on_this_machine_leaves_samples_findings_and_a_page(
    service: tuple[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = campaign(service, out)
    assert done.exception is None
    assert done.return_value == 0
    found = json.loads(done.stdout)
    assert [(one["requests_per_second"], one["jobs"], one["windows"]) for one in found["cells"]] == [
        (50.0, {}, 2), (100.0, {}, 2), (50.0, {"sleep": 1}, 2), (100.0, {"sleep": 1}, 2),
    ]  # fmt: skip
    assert "8 samples" in found["model_refused"]
    samples = qos_from_csv(out / "samples.csv")
    assert len(samples.mixes) == 8
    assert (samples.latency_milliseconds > 0).all()
    assert set(completion_from_csv(out / "completions.csv").types) == {"sleep"}
    assert 0.0 <= found["least_kernel_share"] <= 1.0
    page = (out / "profile.html").read_text()
    assert "1 sleep" in page
    assert "There is no model" in page


def test_the_same_command_goes_on_and_measures_nothing_twice(service: tuple[str, str], tmp_path: Path) -> None:
    none = campaign(service, tmp_path / "out", "--minutes", "0")
    assert isinstance(none.exception, InputError)
    assert "nothing was measured" in str(none.exception)
    whole = campaign(service, tmp_path / "out")
    kept = (tmp_path / "out" / "journal.jsonl").read_bytes()
    again = campaign(service, tmp_path / "out")
    assert (whole.return_value, again.return_value) == (0, 0)
    assert (tmp_path / "out" / "journal.jsonl").read_bytes() == kept
    assert profile("page", str(tmp_path / "out"), "-o", "json").stdout == again.stdout


def test_a_service_that_ends_is_told_with_its_command(tmp_path: Path) -> None:
    done = campaign(("tcp://127.0.0.1:1", "exit 7"), tmp_path / "out")
    assert isinstance(done.exception, InputError)
    assert "'exit 7' ended with 7" in str(done.exception)


def test_a_mistyped_job_ends_the_campaign(service: tuple[str, str], tmp_path: Path) -> None:
    done = campaign(service, tmp_path / "out", "--job", "typo=no-such-program-here")
    assert isinstance(done.exception, CotideError)
    assert "failed 3 times in a row, with exit code 127" in str(done.exception)


def test_jobs_that_do_not_do_their_work_are_warned_of_in_table_page_and_json(
    service: tuple[str, str], tmp_path: Path
) -> None:
    """One fails each second time, one ends at once."""
    flips = f"cd {tmp_path}; if [ -e flip ]; then rm flip; exit 1; fi; touch flip; sleep 0.1"
    done = campaign(service, tmp_path / "out", "--job", f"flips={flips}", "--job", "nothing=true")
    assert done.exception is None
    failed, quick = [one for one in json.loads(done.stdout)["warnings"] if not one.startswith("sleep")]
    assert "runs of flips ended with another exit code than 0" in failed
    assert quick.startswith("nothing ended within ")
    assert quick in (tmp_path / "out" / "profile.html").read_text()
    assert f"warning: {quick}" in profile("page", str(tmp_path / "out")).stdout


def test_a_job_that_is_ended_may_remove_its_temporary_files(tmp_path: Path) -> None:
    job = BatchJob(
        SLEEPER, f"trap 'rm {tmp_path}/part; exit 1' TERM; touch {tmp_path}/part; while :; do sleep 0.01; done"
    )
    with LocalMachine((), 1000) as machine, machine.running((("sleep", 1),), [job]):
        while not (tmp_path / "part").exists():
            time.sleep(0.01)
    assert not (tmp_path / "part").exists()


def test_a_job_that_does_not_want_to_end_is_killed() -> None:
    job = BatchJob(SLEEPER, "trap '' TERM; while :; do sleep 0.01; done")
    began = time.monotonic()
    with LocalMachine((), 1000) as machine, machine.running((("sleep", 1),), [job]):
        pass
    assert time.monotonic() - began < 20.0


def test_jobs_that_run_are_ended_with_all_their_children() -> None:
    job = BatchJob(SLEEPER, "sleep 30 & sleep 30")
    with LocalMachine((), 1000) as machine, machine.running((("sleep", 2),), [job]) as jobs:
        jobs.mark()
        ended, cpu_seconds = jobs.take()
    assert ended == ()
    assert 0 <= cpu_seconds < 1
    assert jobs.fault == ""


def test_the_cpu_of_a_job_is_that_of_its_children_too() -> None:
    """A shell that waits for a busy child uses nothing itself."""
    job = BatchJob(SLEEPER, f"{sys.executable} -c 'while True: pass' & wait")
    with LocalMachine((), 1000) as machine, machine.running((("sleep", 1),), [job]) as jobs:
        deadline = time.monotonic() + 30
        while jobs.take()[1] < 0.2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert jobs.take()[1] >= 0.2


def test_without_cgroups_niceness_gives_the_same_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """1000m beside 250m is 4 to 1, and 1.25 to the sixth is 3.8."""
    monkeypatch.setattr(cgroups, "_hierarchies", lambda millicores: [])
    with cgroups.CpuGroup("job", 250) as group:
        assert group.prefix(1000) == "renice -n 6 -p $$ > /dev/null; "
        assert group.prefix(250) == ""


def test_a_group_of_an_earlier_window_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was killed in it may not be reaped yet, so that it stays: here since a file is in it."""
    monkeypatch.setattr(cgroups, "_hierarchies", lambda millicores: [(tmp_path, "cpu.shares", 256)])
    monkeypatch.setattr(cgroups, "LEAVE_SECONDS", 0.0)
    for _ in range(2):
        with cgroups.CpuGroup("job", 250) as group:
            assert group.directory is not None
            assert group.prefix(1000) == f"echo $$ > {group.directory}/cgroup.procs; "


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("sort=sort -n a=b", JobKind("sort", 0, 250)),
        ("sort:2Gi=x", JobKind("sort", 2 << 30, 250)),
        ("sort:1k:500=x", JobKind("sort", 1000, 500)),
    ],
)
def test_a_job_is_read_as_it_is_written(text: str, kind: JobKind) -> None:
    assert read_job(text, 250).kind == kind


@pytest.mark.parametrize("text", ["sort", "=x", "sort:big=x", "sort:1:0=x"])
def test_a_job_that_is_none_is_named(text: str) -> None:
    with pytest.raises(InputError, match="--job"):
        read_job(text, 250)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rates", "100"),
        ("--rates", "a", "--target", "tcp://x:1"),
        ("--rates", "-1", "--target", "tcp://x:1"),
        ("--rates", "100", "--target", "tcp://x:1", "--windows", "5", "--most-windows", "4"),
        ("--rates", "100", "--target", "tcp://x:1", "--node", "n"),
        ("--rates", "100", "--target", "tcp://x:1", "--service-cores", "4096"),
    ],
)
def test_mistaken_options_are_refused(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["active", "--out", str(tmp_path / "out"), *arguments])
    assert done.exit_code == 2
    assert not (tmp_path / "out").exists()


def listed(name: str, kind: str, phase: str = "Running", cls: str = "batch") -> dict[str, Any]:
    metadata = {"name": name, "labels": {"cotide.dev/class": cls}, "annotations": {"cotide.dev/type": kind}}
    return {"metadata": metadata, "status": {"phase": phase}}


def test_jobs_of_a_cluster_are_pods_on_the_services_node_and_go_afterwards(
    server: ThreadedServer, tmp_path: Path
) -> None:
    """Nobody runs them here: a kubelet would; the test does."""
    kubeconfig = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
    with pytest.raises(ClusterError, match="node n0"):
        ClusterMachine("n0", "default", "busybox", kubeconfig=kubeconfig)
    from kubernetes import client

    from cotide_kube.official import connect

    core: Any = client.CoreV1Api(connect(kubeconfig))
    core.create_node({"metadata": {"name": "n0"}})
    machine = ClusterMachine("n0", "default", "busybox", kubeconfig=kubeconfig)
    monkey = machine._own_pods

    def run_them() -> list[dict[str, Any]]:
        for one in monkey():
            if one.get("status", {}).get("phase") == "Pending":
                core.patch_namespaced_pod_status(one["metadata"]["name"], "default", {"status": {"phase": "Running"}})
        return monkey()

    machine._own_pods = run_them  # type: ignore[method-assign]  # stands for the kubelet
    with machine.running((("sort", 2),), [BatchJob(JobKind("sort", 10, 250), "sort x")]) as jobs:
        pods = core.list_namespaced_pod("default").items
        assert [pod.spec.node_name for pod in pods] == ["n0", "n0"]
        assert {pod.metadata.annotations["cotide.dev/type"] for pod in pods} == {"sort"}
        assert mix_of_pods(machine.pods_of_node(), [JobKind("sort", 10, 250)]) == (("sort", 2),)
        assert jobs.fault == ""
    assert core.list_namespaced_pod("default").items == []


def test_only_batch_pods_that_run_count_as_the_mix() -> None:
    pods = [
        listed("a", "sleep"),
        listed("b", "sleep", "Pending"),
        listed("c", "sleep", cls="online"),
        listed("d", "sleep"),
    ]
    assert mix_of_pods(pods, [SLEEPER]) == (("sleep", 2),)
    with pytest.raises(InputError, match="pod e has type 'sort'"):
        mix_of_pods([listed("e", "sort")], [SLEEPER])


def test_a_service_that_is_slower_alone_than_beside_a_job_was_not_alone(tmp_path: Path) -> None:
    """4 ms alone and 2 beside a job; 2 and 2 say nothing."""
    for alone, said in ((4.0, True), (2.0, False)):
        journal = Journal(tmp_path / f"{alone}", passive_plan())
        for cell, p95 in ((Cell(100.0), alone), (Cell(100.0, (("sleep", 1),)), 2.0)):
            for _ in range(2):
                journal.add(Window(cell, p95, 100.0, 10, 1.0))
        assert profile("page", str(tmp_path / f"{alone}")).exception is None
        page = (tmp_path / f"{alone}" / "profile.html").read_text()
        assert ("At 1 rate the service alone was slower" in page) is said


@pytest.mark.parametrize(("share", "said"), [(1.0, False), (0.98, True), (0.0, True), (math.nan, False)])
def test_windows_without_the_kernels_times_are_named(tmp_path: Path, share: float, said: bool) -> None:
    """Where a load command of the user's says nothing of it, nothing is said."""
    journal = Journal(tmp_path, passive_plan())
    for _ in range(2):
        journal.add(Window(Cell(100.0), 2.0, 100.0, 10, 1.0, kernel_share=share))
    done = profile("page", str(tmp_path), "-o", "json")
    assert done.exception is None
    assert json.loads(done.stdout)["least_kernel_share"] == (None if math.isnan(share) else share)
    assert ("In 2 windows the kernel did not stamp" in (tmp_path / "profile.html").read_text()) is said


def passive_plan() -> Plan:
    jobs = (BatchJob(SLEEPER, ""),)
    return Plan("passive", "q", jobs, (), (), False, 0.0, 0.02, Rule(), 10.0, 1000, "shop/web", 0)


class Switch:
    """Stands for the Jobs that are switched off and on."""

    def __init__(self) -> None:
        self.running = True
        self.set_to: list[bool] = []

    def patch_namespaced_job(self, name: str, namespace: str, body: dict[str, Any], **_: object) -> Any:
        self.running = not body["spec"]["suspend"]
        self.set_to.append(self.running)
        return type("Answer", (), {"data": b"{}"})


async def answer(request: web.Request) -> web.Response:
    """Say 1234 requests/s, of two pods, and a p95 of 3 and 4 ms."""
    rate = (await query_of(request)) == "rate"
    return web.json_response(vector(({"pod": "a"}, 1000 if rate else 3), ({"pod": "b"}, 234 if rate else 4)))


async def test_watching_alternates_jobs_and_leaves_them_running(tmp_path: Path) -> None:
    journal, switch = Journal(tmp_path, passive_plan()), Switch()
    async with stand_in(answer) as url:
        await watch(
            journal,
            Watch(url, "rate", "latency", 0.02, 0.6),
            lambda: (("sleep", 1),) if switch.running else (),
            Alternation(switch, [("default", "job")]),
            lambda what, share: None,
        )
    assert switch.running
    pairs = list(zip(switch.set_to[::2], switch.set_to[1::2], strict=False))
    assert all(set(pair) == {True, False} for pair in pairs[:-1])
    assert {window.cell.mix for window in journal.windows} == {(), (("sleep", 1),)}
    assert {(window.cell.rate, window.achieved_rate, window.p95_milliseconds) for window in journal.windows} == {
        (1200.0, 1234.0, 4.0)
    }


async def test_a_job_that_can_not_be_resumed_keeps_no_other_suspended(tmp_path: Path) -> None:
    """One of them may have been deleted meanwhile, or its API server may have been away for a moment."""

    class Refusing(Switch):
        running_of: ClassVar[dict[str, bool]] = {"gone": True, "job": True}

        def patch_namespaced_job(self, name: str, namespace: str, body: dict[str, Any], **more: object) -> Any:
            if name == "gone" and not body["spec"]["suspend"] and not self.running_of["gone"]:
                raise ApiException(status=404, reason="Not Found")
            self.running_of[name] = not body["spec"]["suspend"]
            return super().patch_namespaced_job(name, namespace, body, **more)

    journal, switch = Journal(tmp_path, passive_plan()), Refusing()
    async with stand_in(answer) as url:
        with pytest.raises(ClusterError):
            await watch(
                journal,
                Watch(url, "rate", "latency", 0.02, 0.6),
                lambda: (),
                Alternation(switch, [("default", "gone"), ("default", "job")], pauses=(0.0,)),
                lambda what, share: None,
            )
    assert switch.running_of["job"]


async def test_an_interval_in_which_jobs_changed_is_left_out(tmp_path: Path) -> None:
    journal, polls = Journal(tmp_path, passive_plan()), iter(range(10**6))
    async with stand_in(answer) as url:
        note = await watch(
            journal,
            Watch(url, "rate", "latency", 0.01, 0.1),
            lambda: (("sleep", next(polls) + 1),),
            Alternation(None, []),
            lambda what, share: None,
        )
    assert journal.windows == []
    assert "left out: jobs changed" in note

"""`cotide simulate --machines`: traces with several resources on many machines, from a user's chair."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cotide_core.errors import InputError
from cotide_core.policies.catalogue import Runner
from cotide_lab.commands.simulate_command import command
from cotide_lab.trace_replay.machine_jobs import machine_jobs_of
from cotide_lab.trace_replay.machine_runner import machine_faults_of, run_on_machines, use_of_resources
from cotide_lab.trace_replay.policies import policy_of
from cotide_sim.traces.jobs.any_log import read_any_log
from cotide_sim.traces.jobs.machines import alike, beside, read_machines
from cotide_sim.traces.jobs.swf_cleaning import Cleaning, clean

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nnode-0,4000,8192,0,\nnode-1,8000,8192,2,T4\nnode-2,8000,8192,2,V100\n"
TASKS = "100,160,3,4,5,Terminated,50,0.25\n100,130,3,5,1,Terminated,100,0.1\n"
SERVERS = "0,7,add,,64,0.5,1\n0,8,add,,64,1,1\n9,7,softerror,links_broken,64,0.5,1\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Forty pods, every fourth with a whole GPU of a T4, beside three nodes."""
    rng = np.random.default_rng(2)
    lines, now = [PODS], 0
    for number in range(40):
        now += int(rng.integers(0, 40))
        run = int(rng.integers(10, 300))
        gpu = "1,1000,T4" if number % 4 == 0 else "0,0,"
        size = f"{1000 * int(rng.integers(1, 4))},{int(rng.integers(500, 5000))}"
        lines.append(f"pod-{number},{size},{gpu},BE,Succeeded,{now},{now + run},{now}\n")
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    path = tmp_path / "pods.csv"
    path.write_text("".join(lines))
    return path


def run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def test_the_machines_beside_the_trace_are_used_and_each_policy_has_its_row(trace, tmp_path):
    names = "fcfs,easy,easy-sjbf,conservative,svf-plan,svf-lw,random-random,random-ef,hybrid,hybrid-machines"
    done = run(
        "--trace", trace, "--machines", "trace", "--policy", names, "-o", "json", "--report", tmp_path / "r.html"
    )
    document = json.loads(done.stdout)
    assert (document["machines"], document["processors"]) == (3, 20_000)
    assert document["machines_source"] == "3 machines of openb_node_list_all_node.csv"
    assert set(document["policies"]) == {*names.replace("svf-plan", "svf").split(",")}
    assert set(document["load"]) == {"cpu", "memory", "gpu"}
    assert document["policies"]["fcfs"]["wait_seconds_mean"] > document["policies"]["easy"]["wait_seconds_mean"] > 0
    assert (tmp_path / "r.html").stat().st_size > 10_000
    table = run("--trace", trace, "--machines", "trace", "--policy", "easy").stdout
    assert "on 3 machines of openb_node_list_all_node.csv" in table


def test_so_many_machines_of_a_size_may_be_named(trace):
    done = run("--trace", trace, "--machines", 5, "--machine-capacity", "cpu=8,memory=16,gpu=1", "--policy", "easy",
               "-o", "json", "--on-bad", "skip")  # fmt: skip
    document = json.loads(done.stdout)
    # No kind is named, so the ten pods that must have a T4 fit nowhere.
    assert (document["machines"], document["processors"], document["left_out"]) == (5, 40_000, 10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--machines", "1"), "asks for 1 x"),
        (("--machines", "0"), "0 is not between 1 and"),
        (("--machines", "nowhere.csv"), "no such file"),
        (("--machines", "trace", "--policy", "block"), "'block' runs pool only"),
        (("--policy", "svf-lw"), "'svf-lw' runs live and machines only"),
        (("--machines", "trace", "--runtime", "trees"), "--runtime: trees are not grown"),
        (("--machines", "trace", "--processors", "9"), "--processors: is the size of one pool"),
        (("--machines", "trace", "--resources", "dominant"), "--resources: is for one pool"),
        (("--machine-capacity", "cpu=1"), "--machine-capacity: is for --machines N"),
        (("--machines", "trace", "--machine-capacity", "cpu=1"), "is for a number of machines"),
        (("--machines", "3", "--machine-capacity", "cpu=x"), "'cpu=x' is not like cpu=64"),
        (("--machines", "3", "--machine-capacity", "tape=1"), "openb has no 'tape'; it has cpu, memory, gpu"),
        (("--machines", "3", "--machine-capacity", "memory=1"), "names no cpu above 0"),
    ],
)
def test_mistakes_are_told_in_one_line(trace, options, words):
    with pytest.raises(InputError) as raised:
        raise run("--trace", trace, *options).exception
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_job_that_fits_no_machine_is_named_with_its_line(trace):
    with trace.open("a") as file:
        file.write("huge,64000,100,0,0,,BE,Succeeded,9000,9100,9000\n")
    with pytest.raises(
        InputError, match=r"pods.csv:42: asks for 1 x \(64 cores, 0.0976562 GiB\), which the 3 machines"
    ):
        raise run("--trace", trace, "--machines", "trace").exception
    document = json.loads(run("--trace", trace, "--machines", "trace", "--on-bad", "skip", "-o", "json").stdout)
    assert (document["jobs"], document["left_out"]) == (40, 1)


def test_alibaba_tasks_are_gangs_and_their_machines_are_those_that_were_added(tmp_path):
    """Two machines with .5 and 1 of memory: five instances of .25 fit as 2 + 3, the other task's .1 beside them."""
    (tmp_path / "server_event.csv").write_text(SERVERS)
    path = tmp_path / "batch_task.csv"
    path.write_text(TASKS)
    found = read_any_log(path)
    machines = beside(found.format, path)
    assert machines.capacity.tolist() == [[64_000, 500_000], [64_000, 1_000_000]]
    given = machine_jobs_of(found, clean(found.log, Cleaning())[0], machines)
    assert (given.pieces.tolist(), given.need.tolist()) == ([5, 1], [[500, 250_000], [1000, 100_000]])
    placement = run_on_machines(given, policy_of("easy"))
    assert placement.schedule.start.tolist() == [0, 0]
    assert (placement.machine.tolist(), placement.count.tolist()) == ([0, 1, 1], [2, 3, 1])
    # 5 x .25 x 60 s + .1 x 30 s of 1.5 x 60 s.
    assert use_of_resources(given, placement)["memory"] == pytest.approx((75 + 3) / 90)


def test_the_check_finds_spoiled_places(trace):
    found = read_any_log(trace)
    given = machine_jobs_of(found, clean(found.log, Cleaning())[0], beside(found.format, trace))
    placement = run_on_machines(given, policy_of("conservative"), watch=lambda done: None)
    assert machine_faults_of(given, placement) == []
    crowded = replace(placement, machine=np.ones_like(placement.machine))
    assert any("machine 1 holds too much memory" in fault for fault in machine_faults_of(given, crowded))
    elsewhere = replace(placement, machine=np.where(placement.machine == 1, 0, placement.machine))
    assert any("a machine that it may not use" in fault for fault in machine_faults_of(given, elsewhere))
    lost = replace(placement, used=np.where(np.arange(40) == 5, 0, placement.used))
    assert any("job 6 has not all its pieces placed" in fault for fault in machine_faults_of(given, lost))


def shared(directory: Path, gpus: str, nodes: str = "n,8000,8192,2,T4\n") -> Path:
    """Return a trace of pods that are there from 0 to 100 s, each with so many GPUs of so many thousandths."""
    (directory / "openb_node_list_all_node.csv").write_text(f"sn,cpu_milli,memory_mib,gpu,model\n{nodes}")
    path = directory / "pods.csv"
    rows = (f"pod-{at},1000,100,{gpu},,BE,Succeeded,0,100,0\n" for at, gpu in enumerate(gpus.split()))
    path.write_text(PODS + "".join(rows))
    return path


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "slack", "svf", "svf-lw", "svf-random", "hybrid"])
def test_no_pod_is_given_halves_of_two_gpus(tmp_path, policy):
    """Two GPUs: the shares of 0.6 of the first two leave 0.8 in all, of which no 0.6 is on one GPU."""
    found = read_any_log(shared(tmp_path, "1,600 1,600 1,600"))
    given = machine_jobs_of(found, clean(found.log, Cleaning())[0], beside(found.format, Path(found.log.file)))
    placement = run_on_machines(given, policy_of(policy, Runner.MACHINES), "clairvoyant")
    assert sorted(placement.schedule.start.tolist()) == [0, 0, 100]
    assert sorted(placement.devices.tolist()) == [1, 1, 2]
    assert machine_faults_of(given, placement) == []
    crowded = replace(placement, devices=np.ones(3, np.int64))
    assert any("machine 0 holds too much of device 0 at 0 s" in fault for fault in machine_faults_of(given, crowded))
    elsewhere = replace(placement, devices=np.array([1, 2, 4]))
    assert any("has not the devices that it asks for" in fault for fault in machine_faults_of(given, elsewhere))


def test_a_pod_with_several_gpus_takes_whole_ones(tmp_path):
    """Two GPUs of half each are two whole ones, beside which the share waits."""
    found = read_any_log(shared(tmp_path, "2,500 1,100"))
    assert [one.devices for one in found.asked] == [(2, 1000), (1, 100)]
    given = machine_jobs_of(found, clean(found.log, Cleaning())[0], beside(found.format, Path(found.log.file)))
    placement = run_on_machines(given, policy_of("easy"), "clairvoyant")
    assert (placement.schedule.start.tolist(), placement.devices.tolist()) == ([0, 100], [3, 1])


def test_as_many_thousandths_of_gpus_as_a_machine_has_are_no_room_for_more_devices_than_it_has(tmp_path):
    found = read_any_log(shared(tmp_path, "1,1000 3,1000"))
    with pytest.raises(InputError, match=r"pods.csv:3: asks for 1 x \(1 cores, 0.0976562 GiB, 3 GPUs\)"):
        machine_jobs_of(found, clean(found.log, Cleaning())[0], beside(found.format, Path(found.log.file)))


@pytest.mark.parametrize(("number", "words"), [("0.5", "0.5 is not a whole number"), ("63", "63 is above 62")])
def test_a_machine_has_a_whole_number_of_gpus_that_can_be_numbered(tmp_path, number, words):
    path = tmp_path / "nodes.csv"
    path.write_text(f"sn,cpu_milli,memory_mib,gpu,model\nn,8000,8192,{number},T4\n")
    with pytest.raises(InputError, match=f"nodes.csv:2: gpu: {words}"):
        read_machines("openb", path)
    with pytest.raises(InputError, match=f"--machine-capacity: gpu {words}"):
        alike("openb", 2, {"cpu": 8, "gpu": float(number)})


def test_half_a_number_of_gpus_is_a_broken_row(tmp_path):
    with pytest.raises(InputError, match=r"pods.csv:2: .*'0.5' is no whole number"):
        read_any_log(shared(tmp_path, "0.5,1000 1,1000"))


def test_machines_are_taken_evenly_and_a_broken_file_is_told(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text(NODES)
    nodes = read_machines("openb", path)
    assert nodes.kinds == ("", "T4", "V100")
    assert nodes.spread(2).kind.tolist() == [0, 1]
    assert nodes.spread(7).kind.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert alike("alibaba2017", 2, {"cpu": 64, "memory": 0.69}).capacity.tolist() == [[64_000, 690_000]] * 2
    path.write_text(NODES.replace("4000", "many"))
    with pytest.raises(InputError, match=r"nodes.csv:2: cpu_milli: 'many' is not a number"):
        read_machines("openb", path)
    path.write_text("0,7,add,,64\n")
    with pytest.raises(InputError, match="5 cells where Alibaba 2017's server events have 7"):
        read_machines("alibaba2017", path)


def test_of_two_rows_with_one_name_the_one_that_is_kept_says_what_the_job_asks_for(tmp_path):
    """The first is excluded: the second's 1000 millicores fit a machine of two cores, the first's 64,000 don't."""
    path = tmp_path / "pods.csv"
    rows = ("pod,64000,100,0,0,,BE,Failed,0,10,0\n", "pod,1000,100,0,0,,BE,Succeeded,5,20,5\n")
    path.write_text(PODS + "".join(rows))
    done = run(
        "--trace", path, "--machines", "1", "--machine-capacity", "cpu=2,memory=1", "--exclude", "status=0",
        "--policy", "fcfs", "-o", "json",
    )  # fmt: skip
    assert done.exception is None
    document = json.loads(done.stdout)
    assert (document["jobs"], document["load"]["cpu"]) == (1, pytest.approx(0.5))

"""`cotide capacity` from a user's chair, on the embedded API server."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from manifests import node_manifest, pod_manifest

from cotide_cli.provisioning import capacity_command
from cotide_cli.provisioning.capacity_command import command, read_history
from cotide_core.errors import InputError
from cotide_operator.config.settings import parse_settings
from cotide_operator.consolidation.carrier import FREED, MARK
from cotide_sim.apiserver.testing import server_in_thread

CONFIG = """apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
provisioning:
  machineTypes:
    - {name: small, cpu: "4", memory: 8Gi, count: 10, idleWatts: 60, peakWatts: 150}
    - {name: wide, cpu: "4", memory: 64Gi, count: 4, idleWatts: 90, peakWatts: 200}
"""


def node(name, kind):
    """A node of a kind, by its label."""
    made = node_manifest(name)
    made["metadata"]["labels"] = {"node.kubernetes.io/instance-type": kind}
    return made


@pytest.fixture
def scene(tmp_path):
    with server_in_thread() as handle:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(handle.kubeconfig())
        config = tmp_path / "config.yaml"
        config.write_text(CONFIG)

        def put(path, body):
            import requests

            answer = requests.post(handle.url + path, json=body, timeout=10)
            assert answer.status_code == 201, answer.text

        def run(*arguments):
            fixed = ["--config", str(config), "--kubeconfig", str(kubeconfig)]
            return CliRunner().invoke(command, [*fixed, *map(str, arguments)], standalone_mode=False)

        yield run, put, config


def test_the_plan_follows_the_pods_and_changes_nothing(scene):
    run, put, _ = scene
    put("/api/v1/nodes", node("n-1", "small"))
    put("/api/v1/nodes", node("n-2", "other"))
    for number in range(6):
        put("/api/v1/namespaces/default/pods", pod_manifest(f"wide-{number}", "1", "20Gi", labels={}))
    done = run("-o", "json")
    document = json.loads(done.stdout)
    # Six pods of 20 GiB fit on wide machines only; small ones have nothing to do.
    assert document["on"] == {"small": 1, "wide": 0}
    last = document["steps"][-1]["machines"]
    assert last["small"] == 0
    assert last["wide"] >= 2
    assert document["unknownNodes"] == ["n-2"]
    assert document["sent"] is None
    table = run().stdout
    assert "advice only: nothing was changed" in table
    assert "unchanged, of no known type, cordoned by a person or not ready: n-2" in table


def test_apply_once_orders_each_node_once_whatever_the_command_answers(scene, tmp_path):
    run, put, config = scene
    log = tmp_path / "log"
    code = f"import sys; open({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10))"
    config.write_text(CONFIG + f"  actuator: {{command: [{json.dumps(sys.executable)}, -c, {json.dumps(code)}]}}\n")
    for number in range(6):
        put("/api/v1/namespaces/default/pods", pod_manifest(f"wide-{number}", "1", "20Gi", labels={}))
    dry = run("--apply", "--dry-run")
    assert re.search(r"would be sent: start capacity-\w+-wide-1 \(wide\)", dry.stdout)
    assert not log.exists()
    assert re.search(r"sent: start capacity-\w+-wide-1 \(wide\)", run("--apply").stdout)
    first = log.read_text().splitlines()
    assert len(set(first)) == len(first) >= 2
    assert "nothing sent" in run("--apply").stdout, "the nodes are on their way"
    assert log.read_text().splitlines() == first


def actuator(log):
    """An actuator that writes down what it is told."""
    code = f"import sys; open({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10)); print('done')"
    return f"  actuator: {{command: [{json.dumps(sys.executable)}, -c, {json.dumps(code)}]}}\n"


def test_a_node_that_a_person_has_cordoned_is_never_stopped_and_one_that_consolidation_freed_is(scene, tmp_path):
    run, put, config = scene
    log = tmp_path / "log"
    config.write_text(CONFIG + actuator(log))
    for name, marks in (("persons", {}), ("freed", {MARK: FREED})):
        made = node(name, "small")
        made["spec"] = {"unschedulable": True}
        made["metadata"]["annotations"] = marks
        put("/api/v1/nodes", made)
    put("/api/v1/nodes", node("open", "small"))
    put("/api/v1/namespaces/default/pods", pod_manifest("one", "1", "1Gi", labels={}, spec={"nodeName": "open"}))
    run("--apply")
    assert log.read_text().splitlines() == ["stop freed small"]


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({"node-role.kubernetes.io/control-plane": ""}, {}),
        ({}, {"karpenter.sh/do-not-disrupt": "true"}),
        ({}, {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "yes"}),
    ],
)
def test_an_idle_node_that_its_owner_or_its_role_keeps_is_neither_cordoned_nor_stopped(
    scene, tmp_path, labels, annotations
):
    run, put, config = scene
    log = tmp_path / "log"
    config.write_text(CONFIG + actuator(log))
    for name, cordoned in (("open", False), ("freed", True)):
        made = node(name, "small")
        made["metadata"]["labels"] |= labels
        made["metadata"]["annotations"] = {**annotations, **({MARK: FREED} if cordoned else {})}
        made["spec"] = {"unschedulable": cordoned}
        put("/api/v1/nodes", made)
    put("/api/v1/nodes", node("plain", "small"))
    put("/api/v1/nodes", node("busy", "small"))
    put("/api/v1/namespaces/default/pods", pod_manifest("one", "1", "1Gi", labels={}, spec={"nodeName": "busy"}))
    done = json.loads(run("--apply", "-o", "json").stdout)
    assert done["sent"] == ["uncordon freed (small)", "cordon plain (small)"]
    assert not log.exists()


def test_a_plan_leaves_out_what_a_person_has_cordoned_as_acting_does(scene, tmp_path):
    run, put, config = scene
    config.write_text(CONFIG + actuator(tmp_path / "log"))
    made = node("persons", "small")
    made["spec"] = {"unschedulable": True}
    put("/api/v1/nodes", made)
    put("/api/v1/nodes", node("open", "small"))
    for name, on in (("one", "open"), ("his", "persons")):
        put("/api/v1/namespaces/default/pods", pod_manifest(name, "1", "1Gi", labels={}, spec={"nodeName": on}))
    asked = [["--plan"], ["--apply", "--dry-run"]]
    plans = [json.loads(run(*options, "-o", "json").stdout) for options in asked]
    assert [plan["on"]["small"] for plan in plans] == [1, 1]
    assert [plan["unknownNodes"] for plan in plans] == [["persons"]] * 2
    assert plans[0]["steps"] == plans[1]["steps"]


def test_a_node_that_is_silent_for_longer_than_a_boot_is_no_room_and_is_left_alone(scene, tmp_path):
    run, put, config = scene
    config.write_text(CONFIG + actuator(tmp_path / "log"))
    made = node("dead", "wide")
    long_ago = "2001-09-09T01:46:40Z"
    made["status"] = {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": long_ago}]}
    put("/api/v1/nodes", made)
    put("/api/v1/namespaces/default/pods", pod_manifest("waits", "1", "20Gi", labels={}))
    document = json.loads(run("-o", "json").stdout)
    # It came just now: whatever its condition says, it may boot still.
    assert (document["on"]["wide"], document["unknownNodes"]) == (1, [])
    config.write_text(config.read_text() + "  bootDeadlineSeconds: 0.000001\n")
    document = json.loads(run("--apply", "-o", "json").stdout)
    assert (document["on"]["wide"], document["unknownNodes"]) == (0, ["dead"])
    assert [one.partition(" ")[0] for one in document["sent"]] == ["start"], "nobody cordons or stops it"


def test_a_node_that_can_not_be_read_is_not_taken_for_lost_and_ends_nothing():
    settings = parse_settings(CONFIG).provisioning
    odd = {"metadata": {"name": "odd", "labels": None}}
    silent = node("silent", "wide")
    silent["metadata"]["creationTimestamp"] = "2001-09-09T01:46:40Z"
    silent["status"] = {"conditions": []}
    assert capacity_command._lost([odd, silent], settings) == {"silent"}


def test_the_order_of_a_machine_that_came_and_was_cordoned_is_not_cancelled(scene, tmp_path):
    run, put, config = scene
    log = tmp_path / "log"
    late = "  bootDeadlineSeconds: 0.001\n"
    config.write_text(CONFIG + late + actuator(log))
    put("/api/v1/namespaces/default/pods", pod_manifest("p", "1", "20Gi", labels={}))
    run("--apply")
    (order,) = [line.split()[1] for line in log.read_text().splitlines()]
    made = node("persons", "wide")
    made["metadata"]["labels"]["cotide.dev/node-order"] = order
    made["spec"] = {"unschedulable": True}
    put("/api/v1/nodes", made)
    run("--apply")
    assert f"cancel {order} wide" not in log.read_text().splitlines()


def test_a_node_that_was_being_emptied_is_opened_when_its_type_is_configured_no_more(scene, tmp_path):
    run, put, config = scene
    config.write_text(CONFIG + actuator(tmp_path / "log"))
    put("/api/v1/nodes", node("open", "small"))
    put("/api/v1/nodes", node("idle", "wide"))
    put("/api/v1/namespaces/default/pods", pod_manifest("one", "1", "1Gi", labels={}, spec={"nodeName": "open"}))
    assert json.loads(run("--apply", "-o", "json").stdout)["sent"] == ["cordon idle (wide)"]
    config.write_text("\n".join(line for line in config.read_text().splitlines() if "name: wide" not in line))
    assert json.loads(run("--apply", "-o", "json").stdout)["sent"] == ["uncordon idle (no known type)"]
    assert json.loads(run("--apply", "-o", "json").stdout)["sent"] == []


def freed_beside_a_full_one(put, **records):
    """One machine is full, and the other one of two consolidation has freed; a pod waits that it would hold."""
    put("/api/v1/nodes", node("full", "small"))
    made = node("freed", "small")
    made["spec"] = {"unschedulable": True}
    made["metadata"]["annotations"] = {MARK: FREED, **records}
    put("/api/v1/nodes", made)
    put("/api/v1/namespaces/default/pods", pod_manifest("one", "4", "7Gi", labels={}, spec={"nodeName": "full"}))
    put("/api/v1/namespaces/default/pods", pod_manifest("two", "3", "7Gi", labels={}))


TWO_SMALL = CONFIG.replace("count: 10", "count: 2").replace("count: 4", "count: 0")


@pytest.mark.parametrize("records", [{}, {"cotide.dev/consolidation-watch": "{}"}])
def test_a_node_that_consolidation_freed_is_opened_when_it_is_wanted(scene, tmp_path, records):
    """Nobody else would: whoever ran `cotide consolidate --apply` has gone."""
    run, put, config = scene
    config.write_text(TWO_SMALL + actuator(tmp_path / "log"))
    freed_beside_a_full_one(put, **records)
    assert json.loads(run("--apply", "-o", "json").stdout)["sent"] == ["uncordon freed (small)"]
    assert json.loads(run("--apply", "-o", "json").stdout)["sent"] == []
    assert json.loads(run("-o", "json").stdout)["unknownNodes"] == [], "it is open, and nobody's any more"
    assert not (tmp_path / "log").exists()


def test_a_freed_node_is_opened_before_replicas_are_raised(scene):
    run, put, config = scene
    config.write_text(f"{TWO_SMALL}  actuator: {{scales: {{small: /apis/apps/v1/namespaces/d/deployments/small}}}}\n")
    freed_beside_a_full_one(put)
    for _ in range(2):
        dry = json.loads(run("--apply", "--dry-run", "-o", "json").stdout)["sent"]
        assert dry == ["uncordon freed (small)"], "nothing was done in a dry run"
    assert json.loads(run("--apply", "-o", "json").stdout)["sent"] == ["uncordon freed (small)"]
    assert json.loads(run("--apply", "-o", "json").stdout)["sent"] == []


def test_a_pod_that_no_machine_can_hold_keeps_nobody_from_a_plan(scene):
    """Whoever may make a pod may ask for anything: an exa of cores is no reason to plan for nobody."""
    run, put, _ = scene
    put("/api/v1/namespaces/default/pods", pod_manifest("endless", "10E", "1Gi", labels={}))
    put("/api/v1/namespaces/default/pods", pod_manifest("large", "1", "65Gi", labels={}))
    for number in range(6):
        put("/api/v1/namespaces/default/pods", pod_manifest(f"wide-{number}", "1", "20Gi", labels={}))
    document = json.loads(run("-o", "json").stdout)
    assert document["steps"][-1]["machines"]["wide"] >= 2
    assert document["hopelessPods"] == 2
    assert "2 pods are larger than any machine" in run().stdout


def test_replicas_count_the_machine_that_a_person_has_cordoned(scene):
    run, put, config = scene
    config.write_text(f"{CONFIG}  actuator: {{scales: {{small: /apis/apps/v1/namespaces/d/deployments/small}}}}\n")
    asks = ("--apply", "--dry-run", "-o", "json")
    put("/api/v1/nodes", node("open", "small"))
    for number in range(4):
        put("/api/v1/namespaces/default/pods", pod_manifest(f"p{number}", "4", "8Gi", labels={}, spec={}))

    def replicas() -> int:
        (said,) = json.loads(run(*asks).stdout)["sent"]
        return int(said.removesuffix(" (small)").rpartition(" ")[2])

    before = replicas()
    assert before > 1
    made = node("persons", "small")
    made["spec"] = {"unschedulable": True}
    put("/api/v1/nodes", made)
    assert replicas() == before + 1


def test_a_pod_that_each_kubelet_runs_by_itself_keeps_no_node(scene, tmp_path):
    run, put, config = scene
    config.write_text(CONFIG + actuator(tmp_path / "log"))
    for name in ("idle", "used"):
        put("/api/v1/nodes", node(name, "small"))
        mirror = pod_manifest(f"proxy-{name}", "100m", "1Mi", spec={"nodeName": name})
        mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
        put("/api/v1/namespaces/default/pods", mirror)
    put("/api/v1/namespaces/default/pods", pod_manifest("one", "1", "1Gi", labels={}, spec={"nodeName": "used"}))
    assert json.loads(run("--apply", "-o", "json").stdout)["sent"] == ["cordon idle (small)"]


def test_what_the_actuator_prints_is_no_part_of_the_document():
    code = (
        "import asyncio\n"
        "from cotide_core.provisioning.node_orders import Action, NodeInstruction\n"
        "from cotide_operator.provisioning.actuators import CommandActuator\n"
        "asyncio.run(CommandActuator(('echo', 'done'), 20.0).do(NodeInstruction(Action.START, 'x', 'a')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "done start x a\n")


def test_a_history_teaches_what_will_come(scene, tmp_path):
    run, _, config = scene
    config.write_text(CONFIG + "  serviceLevel: 0.75\n")
    rows = [f"{at},600,1000,{20 * 2**30},0" for at in range(0, 6 * 3600, 300)]
    history = tmp_path / "tasks.csv"
    history.write_text("arrival_seconds,run_seconds,cpu_millicores,memory_bytes,priority\n" + "\n".join(rows) + "\n")
    document = json.loads(run("--history", history, "-o", "json").stdout)
    # One task every five minutes that runs ten: two at a time.
    (levels,) = document["steps"][-1]["demand"].values()
    assert levels["0.5"] == pytest.approx(2.0, abs=0.8)
    assert document["steps"][-1]["machines"]["wide"] >= 1


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("nan,600,1000,1,0\n", ":2: arrival_seconds: 'nan' is not"),
        ("5,600,1000,1,0\n1732400000000,600,1000,1,0\n", ":3: arrival_seconds: is above 1e+11"),
        ("5,600,1000,1,0\n1732400000,600,1000,1,0\n", "history: goes over 5774667 steps of 300 s"),
        ("5,600,1e300,1,0\n", ":2: cpu_millicores: is above 1e+09"),
        ("5,600,1000,1,high\n", ":2: priority: 'high' is not a priority"),
        ("5,600,1000,1,9999999999\n", ":2: priority: '9999999999' is not a priority"),
    ],
)
def test_a_history_that_can_not_be_is_told_in_one_line(scene, tmp_path, rows, words):
    run, _, _ = scene
    history = tmp_path / "tasks.csv"
    history.write_text(f"arrival_seconds,run_seconds,cpu_millicores,memory_bytes,priority\n{rows}")
    mistake = run("--history", history).exception
    assert isinstance(mistake, InputError)
    assert words in str(mistake)
    assert "\n" not in str(mistake)


def test_a_history_may_hold_priorities_below_zero(tmp_path):
    history = tmp_path / "tasks.csv"
    history.write_text(
        "arrival_seconds,run_seconds,cpu_millicores,memory_bytes,priority\n5,600,1000,1,-10\n6,600,1,1,0.0\n",
        encoding="utf-8-sig",  # as a spreadsheet saves it
    )
    assert read_history(history).priority.tolist() == [-10.0, 0.0]


def test_a_column_that_is_named_twice_is_told(tmp_path):
    history = tmp_path / "tasks.csv"
    history.write_text("priority,arrival_seconds,run_seconds,cpu_millicores,memory_bytes,priority\n1,5,600,1000,1,2\n")
    with pytest.raises(InputError, match=r"tasks\.csv:1: priority: the header names this column more than once"):
        read_history(history)


@pytest.mark.parametrize(
    ("extra", "arguments", "words"),
    [
        ("", (), "no pod and no history"),
        ("", ("--apply",), "names no actuator"),
        ("", ("--dry-run",), "--apply"),
        ("", ("--plan", "--apply"), "together"),
        ("  stepSeconds: 0\n", (), "greater than or equal to 10"),
        ("  pricePerKilowattHour: .nan\n", (), "finite"),
        ("  actuator: {command: [x], url: 'http://y'}\n", (), "exactly one of"),
        ("  actuator: {scales: {huge: /apis/apps/v1/namespaces/d/deployments/x}}\n", (), "none of machineTypes"),
    ],
)
def test_mistakes_are_told_in_one_line(scene, extra, arguments, words):
    run, _, config = scene
    config.write_text(CONFIG + extra)
    mistake = run(*arguments).exception
    assert isinstance(mistake, InputError)
    assert words in str(mistake)
    assert "\n" not in str(mistake)


@pytest.mark.parametrize("size", ["x", "", "-4", "0", "1e400", "9" * 50])
def test_a_machine_of_no_size_is_told_with_its_line(scene, size):
    """The operator reads the same file: it would end when it leads, and not when it starts."""
    run, _, config = scene
    config.write_text(CONFIG.replace('name: wide, cpu: "4"', f'name: wide, cpu: "{size}"'))
    mistake = run().exception
    assert isinstance(mistake, InputError)
    assert str(mistake).startswith(f"{config}:6: provisioning.machineTypes[1].cpu: ")
    config.write_text(CONFIG.replace("memory: 8Gi", f'memory: "{size}"'))
    assert str(run().exception).startswith(f"{config}:5: provisioning.machineTypes[0].memory: ")


def test_a_configuration_without_the_section_is_told(scene):
    run, _, config = scene
    config.write_text("apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n")
    assert "no provisioning section" in str(run().exception)

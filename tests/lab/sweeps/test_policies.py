"""Policies from files in a sweep: the same results wherever they run, known by what the file holds."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from hashlib import sha256

import pytest

from cotide_core.errors import InputError
from cotide_lab.sweeps.cells import Cell
from cotide_lab.sweeps.execution import Workers
from cotide_lab.sweeps.plan import policies_of, synthetic_source, tasks_of
from cotide_lab.sweeps.sweep import run_sweep
from cotide_lab.trace_replay.user_policy import PolicySource, policy_of_source, read_policy

SOURCE = synthetic_source("synth1", 60, 0.9)
SHORTEST = """
import numpy as np


class Shortest:
    def choose(self, queue, machine):
        chosen, free = [], machine.free
        for index in np.argsort(queue.forecast, kind="stable"):
            if queue.demand[index] > free:
                break
            chosen.append(index)
            free -= queue.demand[index]
        return chosen
"""


def swept(given: str, results, count: int = 1, policies=("sjf-queue",), **options):
    """Sweep our policies and one from a file over two seeds."""
    chosen = policies_of([*policies, given], [])
    tasks = tasks_of([SOURCE], chosen, ["request"], (1, 2))
    texts = {one.sha256: one for one in chosen if isinstance(one, PolicySource)}
    return run_sweep(tasks, results, Workers(count, policies=texts), **options)


def rows(results):
    return list(csv.DictReader(results.open()))


def test_a_policy_from_a_file_gives_the_kernel_s_figures_on_any_number_of_workers(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SHORTEST)
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    assert swept(f"{file}:Shortest", one).ran == 4
    assert swept(f"{file}:Shortest", two, 2).ran == 4
    assert one.read_bytes() == two.read_bytes()
    ours = [row for row in rows(one) if row["policy"] == "sjf-queue"]
    mine = [row for row in rows(one) if row["policy"] == "mine:Shortest"]
    assert {row["policy_sha256"] for row in mine} == {sha256(SHORTEST.encode()).hexdigest()}
    assert {row["policy_sha256"] for row in ours} == {""}
    named = ("policy", "policy_sha256")
    assert [{k: v for k, v in row.items() if k not in named} for row in mine] == [
        {k: v for k, v in row.items() if k not in named} for row in ours
    ]


def test_workers_need_no_file_and_a_sweep_goes_on_with_what_is_left(tmp_path):
    file, results = tmp_path / "mine.py", tmp_path / "r.csv"
    file.write_text(SHORTEST)
    source = read_policy(f"{file}:Shortest")
    file.unlink()
    tasks = tasks_of([SOURCE], [source], ["request"], (1, 2))
    first = run_sweep(tasks[:1], results, Workers(2, policies={source.sha256: source}))
    second = run_sweep(tasks, results, Workers(2, policies={source.sha256: source}))
    assert [(one.kept, one.ran, one.failures) for one in (first, second)] == [(0, 1, ()), (1, 1, ())]


def test_a_changed_file_is_refused_by_name_and_checksum_and_a_missing_one_by_its_path(tmp_path):
    file, results = tmp_path / "mine.py", tmp_path / "r.csv"
    file.write_text(SHORTEST)
    swept(f"{file}:Shortest", results)
    before = results.read_bytes()
    file.write_text(SHORTEST + "# another line\n")
    with pytest.raises(
        InputError, match=r"another policy mine:Shortest \(sha256 .{12}\.\.\., now sha256 .{12}\.\.\.\)"
    ):
        swept(f"{file}:Shortest", results)
    assert results.read_bytes() == before
    file.write_text(SHORTEST)
    assert (swept(f"{file}:Shortest", results).kept, results.read_bytes()) == (4, before)
    file.unlink()
    with pytest.raises(InputError, match=r"mine\.py: can't be read: No such file"):
        swept(f"{file}:Shortest", results)


def test_what_a_policy_does_wrong_is_its_cell_s_reason_with_file_and_line(tmp_path):
    file, results = tmp_path / "mine.py", tmp_path / "r.csv"
    file.write_text("def choose(queue, machine):\n    return queue.nothing\n")
    report = swept(str(file), results, 2)
    assert (report.ran, len(report.failures)) == (4, 2)
    assert {f"{file}:2: in choose: AttributeError: 'Queue' object has no attribute 'nothing'"} == {
        failure.error for failure in report.failures
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\n", "mine.py: defines no class Policy and no function choose"),
        ("class Policy:\n    pass\n", "mine.py: class Policy has no method choose"),
        ("def choose(:\n", "mine.py:1: SyntaxError"),
    ],
)
def test_a_file_without_a_policy_is_refused_before_anything_runs(text, complaint, tmp_path):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(InputError, match=complaint):
        policies_of([], [str(tmp_path / "mine.py")])


def test_two_files_of_one_name_are_refused_and_one_named_twice_is_one(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(SHORTEST.replace("Shortest", "Policy") + f"# {folder}\n")
    one, other = (str(tmp_path / folder / "mine.py") for folder in ("a", "b"))
    assert len(policies_of([one, "easy"], [one])) == 2
    with pytest.raises(InputError, match="two policies are named mine"):
        policies_of([one, other], [])


def test_each_cell_gets_a_policy_that_no_other_cell_has_touched(tmp_path):
    """The file counts its calls in a variable of its own: with what another cell left, the second would fail."""
    file, results = tmp_path / "mine.py", tmp_path / "r.csv"
    file.write_text(
        "replays = []\n\n\nclass Policy:\n    def __init__(self):\n        replays.append(1)\n"
        "        assert len(replays) == 1\n\n    def choose(self, queue, machine):\n"
        "        return [0] if len(queue) and queue.demand[0] <= machine.free else []\n"
    )
    assert swept(str(file), results).failures == ()


def test_a_cell_of_one_of_ours_is_known_as_it_was_before_there_were_files():
    cell = Cell("log", "a", "s", "request", "easy", None)
    old = {"trace": "log", "trace_sha256": "a", "settings": "s", "runtime": "request", "policy": "easy", "seed": None}
    assert cell.key == sha256(json.dumps(old, sort_keys=True).encode()).hexdigest()
    assert replace(cell, policy_sha256="x").key != replace(cell, policy_sha256="y").key != cell.key


def test_a_source_makes_the_policy_without_its_file():
    policy = policy_of_source(PolicySource("mine", "gone/mine.py", "Shortest", SHORTEST))
    policy.begin()
    assert (policy.name, str(policy.file)) == ("mine", "gone/mine.py")

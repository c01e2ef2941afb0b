"""The report's zoomable schedule: the page holds the schedules exactly, boxes never overlap, the script draws them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_lab.trace_replay.metrics import figures_of, used_until
from cotide_lab.trace_replay.packed_columns import differences, packed, unpacked
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.processor_map import pieces_of
from cotide_lab.trace_replay.report import write_report
from cotide_lab.trace_replay.runner import run_policy
from cotide_sim.pages.page import Made
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

NODE = shutil.which("node")
NAMES = ("fcfs", "easy")
MADE = Made("cotide simulate", "1.2.3", "2026-01-02")
EXACT = st.integers(-(2**53), 2**53)


def random_jobs(count=400, seed=1, processors=16, seconds=5000):
    rng = np.random.default_rng(seed)
    run = rng.integers(1, seconds, count)
    return BatchJobs(
        name="a <b> & c",
        processors=processors,
        numbers=rng.permutation(count) + 1,
        submit=np.cumsum(rng.integers(0, seconds // 5, count)) + 10_000,
        run=run,
        demand=rng.integers(1, processors // 2, count),
        request=run * 2,
        user=np.ones(count, dtype=np.int64),
    )


class Page(HTMLParser):
    """Collects tags, attributes that would load something, and the texts of scripts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loads, self.scripts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.loads += [value for name, value in attributes if name in ("src", "href", "action")]
        if tag == "script":
            self.scripts.append([dict(attributes), ""])

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, text):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += text


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    jobs = random_jobs()
    schedules = [run_policy(jobs, POLICIES[name]) for name in NAMES]
    figures = {schedule.policy: figures_of(jobs, schedule.start) for schedule in schedules}
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, jobs, "by hand", schedules, figures, MADE)
    return jobs, schedules, figures, path.read_text(encoding="utf-8")


@given(st.lists(EXACT, max_size=40))
def test_packed_columns_read_back_the_same(values):
    column = np.array(values, dtype=np.int64)
    assert unpacked(packed(column)).tolist() == values
    assert np.cumsum(differences(column)).tolist() == values


def test_the_page_loads_nothing_and_holds_the_figures_and_schedules_exactly(made):
    jobs, schedules, figures, text = made
    page = Page(text)
    assert page.loads == []
    assert "http" not in re.sub(r"http-equiv", "", text)
    (kind, data), (_, script) = page.scripts
    assert kind == {"type": "application/json", "id": "schedules"}
    assert script.strip() == (files("cotide_lab.trace_replay") / "schedule_view.js").read_text(encoding="utf-8").strip()
    found = json.loads(data)
    columns = {name: unpacked(column) for name, column in found["columns"].items()}
    assert np.array_equal(np.cumsum(columns["number"]), jobs.numbers)
    assert np.array_equal(np.cumsum(columns["submit"]) + found["begin"], jobs.submit)
    assert np.array_equal(columns["run"], jobs.run)
    assert np.array_equal(columns["demand"], jobs.demand)
    for policy, schedule in zip(found["policies"], schedules, strict=True):
        assert np.array_equal(unpacked(policy["wait"]) + jobs.submit, schedule.start)
        assert policy["figures"] == {name: figure.value for name, figure in figures[schedule.policy].items()}
        count, size = unpacked(policy["count"]), unpacked(policy["size"])
        held = np.add.reduceat(size, np.cumsum(count) - count)
        assert np.array_equal(held, jobs.demand)


def test_text_from_outside_cannot_end_the_script(tmp_path):
    jobs = random_jobs(20)
    schedule = run_policy(jobs, POLICIES["easy"])
    evil = "</script><b>"
    renamed = type(schedule)(evil, *(getattr(schedule, name) for name in schedule.__slots__[1:]))
    write_report(
        tmp_path / "r.html", jobs, evil, [renamed], {evil: figures_of(jobs, schedule.start)}, Made(evil, evil, evil)
    )
    text = (tmp_path / "r.html").read_text()
    assert evil not in text
    assert json.loads(Page(text).scripts[0][1])["policies"][0]["name"] == evil


@pytest.mark.parametrize("seed", range(4))
def test_no_two_jobs_hold_one_processor_at_one_time(seed):
    # Runs of a few seconds, so that one job's last second is often another's first.
    jobs = random_jobs(300, seed, processors=8 + 9 * seed, seconds=10)
    start = run_policy(jobs, POLICIES["easy-sjbf"]).start
    pieces = pieces_of(start, jobs.run, jobs.demand, jobs.processors)
    assert (pieces.first >= 0).all()
    assert (pieces.first + pieces.size <= jobs.processors).all()
    held = np.bincount(pieces.job, pieces.size, minlength=len(jobs))
    assert np.array_equal(held, jobs.demand)
    begin, end = start[pieces.job], (start + jobs.run)[pieces.job]
    for index in range(len(begin)):
        beside = (begin < end[index]) & (begin[index] < end)
        across = (pieces.first < pieces.first[index] + pieces.size[index]) & (
            pieces.first[index] < pieces.first + pieces.size
        )
        assert np.flatnonzero(beside & across).tolist() == [index]


def test_a_job_goes_whole_into_the_smallest_gap_that_takes_it_and_in_pieces_only_where_none_does():
    """Jobs hold 0-2, 3-4, 5-6 and 7; the first and third end at 5: then 2 go to 5-6, 3 to 0-2; at 10, 0-6 are free."""
    start, run = np.array([0, 0, 0, 0, 5, 5, 10]), np.array([5, 10, 5, 99, 5, 5, 9])
    pieces = pieces_of(start, run, np.array([3, 2, 2, 1, 2, 3, 7]), 8)
    assert list(zip(pieces.first.tolist(), pieces.size.tolist(), strict=True)) == [
        (0, 3), (3, 2), (5, 2), (7, 1), (5, 2), (0, 3), (0, 7),
    ]  # fmt: skip
    split = pieces_of(np.array([0, 0, 0, 0, 5]), np.array([5, 10, 5, 99, 9]), np.array([3, 2, 2, 1, 4]), 8)
    assert list(zip(split.first.tolist(), split.size.tolist(), strict=True))[4:] == [(0, 3), (5, 1)]


def test_a_schedule_that_was_never_checked_is_refused_instead_of_drawn():
    with pytest.raises(ValueError, match="more processors in use than there are"):
        pieces_of(np.array([0, 1]), np.array([5, 5]), np.array([2, 2]), 3)


PAGE_OF_STUBS = """
const calls = {}, listeners = {}, frames = [];
function element(id) {
  calls[id] = [];
  const pen = {setTransform() {}, clearRect() { calls[id].length = 0; }, beginPath() {}, stroke() {}, fillText() {},
    fillRect(...box) { calls[id].push(box); }, lineTo(...point) { calls[id].push(point); }};
  return {textContent: "", clientWidth: 800, clientHeight: 400, getContext: () => pen, setPointerCapture() {},
    add() {}, addEventListener(name, does) { listeners[id + "." + name] = does; }};
}
const elements = {};
globalThis.document = {body: {}, getElementById: (id) => (elements[id] = elements[id] || element(id))};
globalThis.window = {addEventListener() {}};
globalThis.Option = class {};
globalThis.getComputedStyle = () => ({color: "black"});
globalThis.requestAnimationFrame = (does) => frames.push(does);
const flush = () => { while (frames.length) frames.shift()(); };
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
document.getElementById("schedules").textContent = given.data;
eval(given.script);
flush();
const report = [{boxes: calls.jobs.slice(), use: calls.use.slice(), said: elements.said.textContent}];
for (const step of given.steps) {
  if (step[0] === "policy") { elements.policy.value = step[1]; elements.policy.onchange(); }
  else if (step[0] === "click") elements[step[1]].onclick();
  else listeners[step[0]](Object.assign({preventDefault() {}}, step[1]));
  flush();
  report.push({boxes: calls.jobs.slice(), use: calls.use.slice(), said: elements.said.textContent});
}
console.log(JSON.stringify(report));
"""


def drawn(text, steps=(), *, boxes=None):
    """Run the page's script in node on elements that note what is drawn; (boxes, use, said) at first and by step."""
    (_, data), (_, script) = Page(text).scripts
    if boxes is not None:
        script = script.replace("const BOXES = 20000;", f"const BOXES = {boxes};")
    done = subprocess.run(
        [NODE, "-e", PAGE_OF_STUBS],
        input=json.dumps({"data": data, "script": script, "steps": steps}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(NODE is None, reason="needs node to run the page's script")
class TestScript:
    def test_every_piece_is_drawn_where_it_lies(self, made):
        jobs, schedules, _, text = made
        _, first = drawn(text, [["policy", "0"]])
        start = schedules[0].start
        pieces = pieces_of(start, jobs.run, jobs.demand, jobs.processors)
        last = max(int((schedule.start + jobs.run).max()) for schedule in schedules)
        wide = 800 / (last - jobs.submit[0])
        expected = sorted(
            ((start[job] - jobs.submit[0]) * wide, 400 - (at + size) * 400 / 16, jobs.run[job] * wide, size * 400 / 16)
            for job, at, size in zip(pieces.job, pieces.first, pieces.size, strict=True)
        )
        assert np.allclose(sorted(first["boxes"]), np.maximum(expected, [0, 0, 0.5, 0.5]))
        assert first["said"].startswith("fcfs: mean wait ")
        assert f"{len(pieces.job)} boxes in sight" in first["said"]

    def test_far_away_the_share_in_use_is_drawn_and_near_by_the_jobs(self, made):
        jobs, schedules, _, text = made
        _, far, *near = drawn(text, [["policy", "0"], *([["click", "closer"]] * 6)], boxes=60)
        assert "share in use, zoom in to see jobs" in far["said"]
        edges = np.linspace(jobs.submit[0], max((s.start + jobs.run).max() for s in schedules), 801)
        used = used_until(jobs, schedules[0].start, edges)
        shares = np.diff(used) / (np.diff(edges) * jobs.processors)
        assert np.allclose([box[3] / 400 for box in far["boxes"]], shares, atol=1e-6)
        assert np.allclose([box[1] + box[3] for box in far["boxes"]], 400)
        assert "boxes in sight" in near[-1]["said"]
        assert 0 < len(near[-1]["boxes"]) <= 60

    def test_another_policy_is_shown_and_a_job_is_told_when_pointed_at(self, made):
        _, _, figures, text = made
        begin = {"offsetX": 1, "offsetY": 399}
        _, easy, pointed, wheel = drawn(
            text, [["policy", "1"], ["jobs.pointermove", begin], ["jobs.wheel", {"deltaY": -1, "offsetX": 400}]]
        )
        hours, seconds = divmod(round(figures["easy"]["wait_seconds_mean"].value), 3600)
        assert easy["said"].startswith(f"easy: mean wait {hours} h {seconds // 60} min")
        lasting = r"(\d+ \w+ ?){1,2}"
        words = rf"job \d+: submitted {lasting} after the first, waited {lasting}, ran {lasting} on \d+ processors?"
        assert re.match(words, pointed["said"])
        assert len(wheel["boxes"]) < len(easy["boxes"])

    def test_it_opens_on_the_policy_of_the_least_slowdown(self, made):
        _, _, figures, text = made
        assert figures["easy"]["bounded_slowdown_mean"].value < figures["fcfs"]["bounded_slowdown_mean"].value
        (first,) = drawn(text)
        assert first["said"].startswith("easy: ")

    def test_use_is_drawn_for_every_policy(self, made):
        _, _, _, text = made
        (first,) = drawn(text)
        assert len(first["use"]) == 2 * 800

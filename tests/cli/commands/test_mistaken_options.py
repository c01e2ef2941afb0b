"""Options that no command can work with: one line on stderr, exit code 2, and data in each promised form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cotide_cli import main
from cotide_cli.printing import as_text, camel_cased
from cotide_core.consolidation.removal.drain_plan import Emptying
from cotide_core.consolidation.removal.watching import Acts, GivenBack
from cotide_core.recording.ledger import NO_LEDGER

NO_EPOCH = "is not an epoch second from 1970 to the year 9999"


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["cotide", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("apiserver", "--port", "0", "--event-ttl", "nan"), "--event-ttl: nan is not a number of seconds"),
        (
            ("apiserver", "--port", "0", "--bookmark-seconds", "nan"),
            "--bookmark-seconds: nan is not a number of seconds",
        ),
        (("demo", "--seconds", "nan"), "--seconds: nan is not a number of seconds"),
        (("demo", "--seconds", "inf"), "--seconds: inf is not a number of seconds"),
        (("demo", "--page", "no/folder/page.html"), "--page: there is no folder no/folder"),
        (("demo", "--page", "/"), "--page: / is a folder; name a file"),
        (("demo", "--speed", "0"), "--speed: 0 is not a speed of the demo's clock; 1 to 60"),
        (("simulate", "--generate", "synth1", "--report", "/"), "--report: / is a folder; name a file"),
        (("simulate", "--generate", "synth1", "--swf", "/dev/null"), "--swf: /dev/null is a file; name a folder"),
        (("nodes", "--speed", "nan"), "--speed: nan is not a speed-up: it must be a number above 0"),
        (("nodes", "--speed", "1e308"), "--speed: 1e+308 is not a possible speed of pods; 1e-06 to 1e+06"),
        (("nodes", "--origin-seconds", "1e308"), f"--origin-seconds: 1e+308 {NO_EPOCH}"),
        (("nodes", "--origin-seconds", "-1"), f"--origin-seconds: -1 {NO_EPOCH}"),
        (("demo", "--seconds", "1e308"), "--seconds: 1e+308 is too long; 604,800, a week, is the most"),
    ],
)
def test_what_is_no_number_is_refused_before_anything_starts(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, *arguments) == 2
    assert capfd.readouterr() == ("", f"cotide: {message}\n")


@pytest.mark.parametrize("option", ["models", "ledger"])
def test_a_file_where_the_operator_needs_a_directory_is_refused(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert ended(monkeypatch, "operator", f"--{option}", str(file)) == 2
    assert capfd.readouterr().err == f"cotide: {option}.directory: {file} is not a directory\n"


def test_a_name_that_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "a" * 300  # above the 255 bytes that a file's name may have
    assert ended(monkeypatch, "evaluate", "qos", "--data", name) == 1
    assert capfd.readouterr() == ("", f"cotide: {name}: File name too long\n")


def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        asked = [sys.executable, "-m", "cotide_cli", "version"]
        done = subprocess.run(asked, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "cotide: No space left on device\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_the_terminal_has_no_character_for_is_shown_in_another_way(encoding: str) -> None:
    shows = "from cotide_cli import main; main._print_anything(); print('\\u2192 \\udcff')"
    done = subprocess.run(
        [sys.executable, "-c", shows],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.strip() == "\u2192 \udcff".encode(encoding, "backslashreplace")


def test_documents_are_the_same_in_json_and_in_yaml() -> None:
    document = {"seed": 7, "nodes": ("a", "b"), "words": "mét", "none": None}
    expected = {**document, "nodes": ["a", "b"]}
    assert json.loads(as_text(document, "json")) == expected
    assert yaml.safe_load(as_text(document, "yaml")) == expected
    assert as_text({"words": "mét"}, "yaml") == "words: mét"
    undefined = {"low": float("nan"), "rows": [(1.5, float("inf"))]}
    for output in ("json", "yaml"):
        assert yaml.safe_load(as_text(undefined, output)) == {"low": None, "rows": [[1.5, None]]}


def test_documents_about_a_cluster_name_fields_as_the_api_server_does() -> None:
    acts = Acts(leave=(Emptying("n", 1.0, 2.0),), give_back=(GivenBack("m", "why"),))
    assert camel_cased(acts) == {
        "drain": (),
        "leave": ({"node": "n", "p50Seconds": 1.0, "p90Seconds": 2.0},),
        "freed": (),
        "giveBack": ({"node": "m", "why": "why", "demanded": False, "late": False},),
    }


def test_a_command_that_is_not_there_is_told_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "simulatte") == 2
    assert "No such command 'simulatte', did you mean 'simulate'?" in capfd.readouterr().err


def test_what_is_missing_or_no_file_is_said_in_one_sentence_before_work_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = {
        (
            "operator",
            "--config",
            f"{tmp_path}/c.yaml",
        ): "the configuration file can't be read: no such file or directory",
        ("operator", "--config", f"{tmp_path}"): "the configuration file can't be read: is a directory",
        (
            "simulate",
            "--trace",
            f"{tmp_path}",
        ): "is a folder without a ledger.jsonl; name a trace file, or a ledger's folder",
        ("simulate", "--generate", "lublin", "--report", f"{tmp_path}/no/r.html"): f"there is no folder {tmp_path}/no",
        ("simulate", "--generate", "lublin", "--report", "/proc/r.html"): "can't be written: no such file or directory",
        ("evaluate", "qos", "--page", f"{tmp_path}/no/r.html"): f"--page: there is no folder {tmp_path}/no",
        ("evaluate", "qos", "--ledger", "/dev/null"): "/dev/null: the ledger is empty",
        ("train", "qos", "--out", "none", "--ledger", "/dev/null"): "/dev/null: the ledger is empty",
    }
    for arguments, sentence in said.items():
        assert ended(monkeypatch, *arguments) == 2
        assert capfd.readouterr().err.rstrip().endswith(sentence)


ENDLESS = "/dev/zero"
"""Stands for files that are far too large: a reader that takes all of it never ends."""
LONG_LINE = "has a line of more than 16 MiB, of which no more is read"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("explain", "pod", "a", "--kubeconfig", ENDLESS), "has more than 4 MiB: is it a kubeconfig?"),
        (("consolidate", "--kubeconfig", ENDLESS), "has more than 4 MiB: is it a kubeconfig?"),
        (("nodes", "--kubeconfig", ENDLESS), "has more than 4 MiB: is it a kubeconfig?"),
        (("consolidate", "--prices", ENDLESS), "has more than 262144 characters, which is the limit"),
        (("operator", "--config", ENDLESS), "has more than 262144 characters, which is the limit"),
        (("place", ENDLESS), "has more than 262144 characters, which is the limit"),
        (("whatif", "--each-node", "--ledger", ENDLESS), NO_LEDGER),
        (("replay", ENDLESS), NO_LEDGER),
        (("report", ENDLESS), NO_LEDGER),
        (("train", "qos", "--out", "none", "--ledger", ENDLESS), NO_LEDGER),
        (("train", "qos", "--out", "none", "--samples", ENDLESS), LONG_LINE),
        (("train", "completion", "--out", "none", "--samples", ENDLESS), LONG_LINE),
        (("evaluate", "qos", "--samples", ENDLESS), LONG_LINE),
        (("experiment", "run-times", ENDLESS), LONG_LINE),
        (("experiment", "offline", "--trace", ENDLESS), LONG_LINE),
        (("experiment", "host-load", "--series", ENDLESS), LONG_LINE),
        (("experiment", "joint", "--journal", ENDLESS), "is no file, but a device or a pipe; name a file"),
        (("lab", "report", "--journal", ENDLESS), "is no file, but a device or a pipe; name a file"),
        (("lab", "run", "--task", "run-time", "--journal", "none", "--data", ENDLESS), "so write it to a file"),
        (("nodes", "--interference", ENDLESS), "has more than 64 MiB, of which no more is read"),
    ],
)
def test_a_file_that_is_far_too_large_is_not_read_to_its_end(
    arguments: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, *arguments) == 2
    said = capfd.readouterr().err.rstrip()
    assert f"cotide: {ENDLESS}:" in said.splitlines()[-1]
    assert said.endswith(sentence)


@pytest.mark.parametrize("option", ["demand", "prices", "state"])
def test_a_file_of_place_that_is_far_too_large_is_not_read_to_its_end(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    centre = "{name: east, context: a, servers: 4, delays: {all: 0.08}}"
    (tmp_path / "place.yaml").write_text(f"deployment: web\ndelaySeconds: 1\nserviceRate: 50\ncentres: [{centre}]\n")
    files = {"demand": "all\n9\n", "prices": "east\n1\n", "state": "[]"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given = {name: ENDLESS if name == option else str(tmp_path / name) for name in files}
    options = [part for name, path in given.items() for part in (f"--{name}", path)]
    assert ended(monkeypatch, "place", str(tmp_path / "place.yaml"), *options, "--kubeconfig", "none") == 2
    said = capfd.readouterr().err
    assert said.startswith(f"cotide: {ENDLESS}")
    assert "of which no more is read" in said


def test_a_history_of_capacity_that_is_far_too_large_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kind = '{name: small, cpu: "4", memory: 8Gi, count: 10, idleWatts: 60, peakWatts: 150}'
    (tmp_path / "c.yaml").write_text(
        "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"
        f'provisioning:\n  machineTypes: [{kind}]\n  actuator: {{command: ["true"]}}\n'
    )
    assert ended(monkeypatch, "capacity", "--config", f"{tmp_path}/c.yaml", "--history", ENDLESS) == 2
    assert capfd.readouterr().err == f"cotide: {ENDLESS}:1: {LONG_LINE}\n"


def test_a_page_that_can_not_be_written_is_told_before_the_demo_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)  # who is root may write wherever it can be done
    assert ended(monkeypatch, "demo", "--page", f"{tmp_path}/demo.html") == 2
    assert capfd.readouterr().err == f"cotide: --page: {tmp_path}/demo.html can't be written here; name another file\n"


PROFILE = ("profile", "active", "--rates", "1", "--load-command", "true", "--out", "none")


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    "arguments",
    [
        *((*PROFILE, f"--{name}") for name in
          ("limit-ms", "warm-up-seconds", "window-seconds", "width", "harm-ms", "harm-seconds", "minutes")),
        ("report", ".", "--slot-seconds"),
        ("simulate", "--generate", "lublin", "--fair-half-life"),
        ("node-agent", "--node", "n", "--half-life"),
        ("experiment", "joint", "--seconds"),
    ],
)  # fmt: skip
def test_a_number_that_is_none_is_refused_before_anything_starts(
    arguments: tuple[str, ...],
    number: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert ended(monkeypatch, *arguments, number) == 2
    said = capfd.readouterr().err
    assert f"{arguments[-1]}: {number} is no number" in said or f"{number} is not in the range" in said


@pytest.mark.parametrize("host", ["x\udcff", "a" * 300])
@pytest.mark.parametrize(
    "arguments",
    [("apiserver", "--host"), ("nodes", "--metrics-host"), ("node-agent", "--node", "n", "--metrics-host"),
     ("operator", "--metrics-host")],
)  # fmt: skip
def test_what_no_host_can_be_called_is_refused_before_anything_starts(
    arguments: tuple[str, ...], host: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, *arguments, host) == 2
    assert "is no name or address of a host" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["x\udcff", "Web", "a" * 300, "a/b"])
def test_what_no_pod_can_be_called_is_refused_before_anybody_is_asked(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "explain", "pod", name, "--kubeconfig", "none") == 2
    assert "is not a valid name of an object" in capfd.readouterr().err


def test_an_empty_name_of_a_pod_is_reported_as_missing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "explain", "pod", "", "--kubeconfig", "none") == 2
    assert "name: is missing: cotide explain pod NAME" in capfd.readouterr().err


HUGE = "1" + "0" * 30


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "qos", "--out", "none", "--seed", HUGE),
        ("train", "qos", "--out", "none", "--limit-ms", "1e308"),
        ("evaluate", "qos", "--seed", HUGE),
        ("evaluate", "qos", "--splits", HUGE),
        ("evaluate", "qos", "--limit-ms", "1e308"),
        ("simulate", "--generate", "lublin", "--seed", HUGE),
        ("demo", "--seed", HUGE),
        (*PROFILE, "--seed", HUGE),
        (*PROFILE, "--limit-ms", "1e308"),
        ("sweep", "--results", "none", "--workers", HUGE),
        ("lab", "run", "--task", "run-time", "--journal", "none", "--workers", HUGE),
        ("nodes", "--pods", HUGE),
    ],
)
def test_what_is_beyond_all_bounds_is_refused_before_anything_starts(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, *arguments) == 2
    assert f"Invalid value for '{arguments[-2]}'" in capfd.readouterr().err


def test_versions_are_printed_in_each_form(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert ended(monkeypatch, "version", "-o", "json") == 0
    assert {"cotide", "python", "numpy"} <= set(json.loads(capfd.readouterr().out))

"""What a shell and kubectl are offered while a line is written."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from click.testing import CliRunner

from cotide_cli.completion import kubectl_answer
from cotide_cli.main import cotide


def test_kubectl_is_offered_commands_with_what_they_do() -> None:
    assert kubectl_answer(cotide, ["expl"]).splitlines() == [
        "explain\tExplain why a pod or a Job is where it is, or why it waits.",
        ":4",
    ]


def test_kubectl_is_offered_options_and_their_values() -> None:
    assert "--kubeconfig\t" in kubectl_answer(cotide, ["operator", "--kube"])
    assert kubectl_answer(cotide, ["version", "-o", ""]).splitlines() == ["table", "json", "yaml", ":4"]


def test_where_a_file_is_wanted_the_shell_completes_files() -> None:
    assert kubectl_answer(cotide, ["simulate", "--trace", ""]) == ":0"


@pytest.mark.parametrize("line", [[], [""], ["no-such-command", ""], ["explian", ""], ["version", "--nonsense", ""]])
def test_a_line_with_mistakes_raises_nothing(line: list[str]) -> None:
    assert kubectl_answer(cotide, line).splitlines()[-1] in (":0", ":4")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one_that_it_reads(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("needs bash")
    done = CliRunner().invoke(cotide, ["completion", shell])
    assert done.exit_code == 0, done.output
    assert "_COTIDE_COMPLETE" in done.output
    if (program := shutil.which(shell)) is not None:
        checked = subprocess.run([program, "-n"], input=done.output, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")

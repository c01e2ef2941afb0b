"""The registry of policies: one name, one meaning, wherever it runs."""

from __future__ import annotations

from collections import Counter

import pytest
from repository import ROOT

from cotide_core.config import SchedulerConfig
from cotide_core.errors import InputError
from cotide_core.policies import POLICIES, build_policy
from cotide_core.policies.catalogue import ENTRIES, Runner, entry_of, names
from cotide_lab.trace_replay import policies as replay


def test_no_name_or_alias_stands_for_two_policies() -> None:
    counted = Counter(name for entry in ENTRIES for name in (entry.name, *entry.aliases))
    assert [name for name, times in counted.items() if times > 1] == []


def test_every_live_entry_is_built_under_its_name_and_nothing_else_is_live() -> None:
    assert set(POLICIES) == set(names(Runner.LIVE))
    assert {build_policy(SchedulerConfig(policy=name)).name for name in POLICIES} == set(POLICIES)


def test_every_replay_entry_has_its_kernel_and_no_kernel_is_without_an_entry() -> None:
    assert set(replay.POLICIES) == {*names(Runner.POOL), *names(Runner.MACHINES)}


def test_an_alias_is_the_same_policy_live_and_in_replay() -> None:
    assert build_policy(SchedulerConfig(policy="online-svf")).name == "svf"
    assert replay.policy_of("svf-plan").name == "svf"


def test_an_unknown_name_is_told_the_nearest_and_those_there_are() -> None:
    with pytest.raises(InputError, match="did you mean 'qpsm'"):
        build_policy(SchedulerConfig(policy="qspm"))


def test_a_policy_that_does_not_run_here_says_where_it_does() -> None:
    with pytest.raises(InputError, match="'qpsm' runs live only; here there are fair, fcfs, "):
        entry_of("qpsm", Runner.POOL)


def test_the_table_in_the_docs_has_a_row_for_each_entry() -> None:
    text = (ROOT / "docs" / "guide" / "policies.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{entry.name}` | {', '.join(entry.aliases) or '-'} | {entry.summary} | {', '.join(entry.runs)} |"
        f" {entry.source} |"
        for entry in ENTRIES
    ]

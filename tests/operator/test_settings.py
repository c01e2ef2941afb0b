# ruff: noqa: E501 - tables of cases read best with one case a line
"""The configuration file: what is accepted, and what each mistake is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotide_core.config import SchedulerConfig
from cotide_core.errors import InputError
from cotide_operator.settings import engine_config, parse_settings, read_settings, with_changes

HEAD = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"

MISTAKES = [
    ("polcy: fifo\n", "c.yaml:3: polcy: is not a setting; there are apiVersion, kind, policy"),
    ("queue:\n  backoffInitialSecs: 1\n", "c.yaml:4: queue.backoffInitialSecs: is not a setting"),
    ("policy: easy\n", "c.yaml:3: policy: 'easy' is not there; this version has fifo, fifo-guarded, hierarchical, qpsm"),
    ("queue:\n  backoffMaxSeconds: 0.5\n", "c.yaml:3: queue: backoffMaxSeconds must not be below backoffInitialSeconds"),
    ("qos: {riskThresholdProbability: 1.5}\n", "c.yaml:3: qos.riskThresholdProbability: input should be less than or equal to 1"),
    ("metricsSource: {prometheus: {url: 'http://p'}, scrape: {url: 'http://s'}}\n", "c.yaml:3: metricsSource: name exactly one of"),
    ("metricsSource: {intervalSeconds: 3}\n", "c.yaml:3: metricsSource: name exactly one of"),
    ("metricsSource:\n  prometheus:\n    url: prometheus:9090\n", "c.yaml:5: metricsSource.prometheus.url: must begin with http"),
    ("overload: {cpuThreshold: 1}\n", "c.yaml:3: overload: is not a setting"),
    ("seed: 1\nseed: 2\n", "c.yaml:4: seed: is written twice"),
    ("models: {retraining: {enabled: true}}\n", "c.yaml:3: models: retraining needs a directory"),
    ("leaderElection: {renewDeadlineSeconds: 20}\n", "c.yaml:3: leaderElection: must be ordered: retryPeriodSeconds"),
    ("seed: [\n", "c.yaml:4: is not YAML"),
    ("slotSeconds: .inf\n", "c.yaml:3: slotSeconds: input should be a finite number"),
    ("simulatedTime: {originSeconds: .nan, speed: 1}\n", "c.yaml:3: simulatedTime.originSeconds: input should be a finite number"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"), MISTAKES, ids=[case[0].split(":")[0] + str(i) for i, case in enumerate(MISTAKES)]
)
def test_a_mistake_is_named_with_file_line_and_field(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_settings(HEAD + text, "c.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: CotideConfiguration\n", "c.yaml:1: apiVersion: must be cotide.dev/v1alpha1"),
        ("apiVersion: cotide.dev/v1alpha1\nkind: Pod\n", "c.yaml:2: kind: must be CotideConfiguration"),
        ("- a\n", "c.yaml: must be a mapping"),
        ("", "c.yaml: must be a mapping"),
    ],
)
def test_another_kind_of_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        parse_settings(text, "c.yaml")


def test_several_mistakes_are_counted_and_the_first_is_told() -> None:
    with pytest.raises(InputError, match=r"a: is not a setting; .* \(and 1 more\)"):
        parse_settings(HEAD + "a: 1\nb: 2\n")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read: FileNotFoundError"):
        read_settings(tmp_path / "none.yaml")


def test_without_a_file_the_engine_keeps_its_own_defaults() -> None:
    assert engine_config(read_settings(None)) == SchedulerConfig()


def test_every_engine_knob_comes_through() -> None:
    text = (
        "policy: fifo-guarded\nseed: 7\nqos: {riskThresholdProbability: 0.2}\n"
        "queue: {backoffInitialSeconds: 2, backoffMaxSeconds: 20, unschedulableFlushSeconds: 30, ageBackSeconds: 40,"
        " overtakingSeconds: 50, maxDecisionsPerCycle: 60, maxPods: 70}\n"
        "simulatedTime: {originSeconds: 100, speed: 20}\n"
    )
    assert engine_config(parse_settings(HEAD + text)) == SchedulerConfig(
        policy="fifo-guarded",
        seed=7,
        qos_risk_threshold=0.2,
        backoff_initial_seconds=2,
        backoff_max_seconds=20,
        unschedulable_flush_seconds=30,
        age_back_seconds=40,
        overtaking_seconds=50,
        max_decisions_per_cycle=60,
        # an unconfirmed binding is a matter of wall time: 120 s are 2,400 s of a clock that runs 20 times as fast
        assume_timeout_seconds=2400,
        max_queue=70,
    )


def test_the_command_line_is_checked_like_the_file(tmp_path: Path) -> None:
    settings = with_changes(read_settings(None), policy="fifo", ledger={"directory": tmp_path}, models=None)
    assert (settings.policy, settings.ledger.directory if settings.ledger else None) == ("fifo", tmp_path)
    with pytest.raises(InputError, match="policy: 'easy' is not there"):
        with_changes(settings, policy="easy")

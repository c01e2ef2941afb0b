"""Parts of the day of learning: what it draws, what it changes of the overlay, how it poisons, and how it judges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml
from learning_day import BASES, OVERLAY, configuration, packed, poisoned, services, unpacked, verdicts

from cotide_core.recording.samples import MeasuredMix
from cotide_operator.config.settings import parse_settings
from cotide_predictors.learning import kept_state


def test_services_span_the_latencies_and_rates_that_are_claimed() -> None:
    drawn = services(400, np.random.default_rng(0))
    alone = [one.latency_factor * BASES[0] for one in drawn]
    assert min(alone) < 2.5
    assert max(one.latency_factor * BASES[1] for one in drawn) > 400.0
    rates = [one.peak * one.rate_factor for one in drawn]
    assert max(rates) / min(rates) > 1000.0
    assert {round(one.limit / one.latency_factor, 1) for one in drawn} == {0.5, 1.0, 2.0}


def test_only_clock_source_and_pauses_of_the_overlay_change() -> None:
    before = yaml.safe_load(OVERLAY.read_text(encoding="utf-8"))
    after = configuration(Path("day"), "http://127.0.0.1:1/metrics", 0.0, 240.0)
    parse_settings(yaml.safe_dump(after))
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert changed == {"models", "metricsSource", "simulatedTime"}
    learning, learning_before = after["models"]["retraining"], before["models"]["retraining"]
    assert {key: learning[key] for key in learning_before} == learning_before
    assert set(learning) - set(learning_before) == {"checkSeconds", "keepSeconds"}


def test_a_poisoned_store_says_the_same_of_everything_and_is_read_as_any_other() -> None:
    mixes = [MeasuredMix("shop/web", 100.0, 0.0, 10.0, 0.5, (("sort", 1, 5),), latency) for latency in (3.0, 30.0)]
    files = kept_state.to_files(mixes, {}, "m")
    samples, _, model = kept_state.from_files(unpacked({"binaryData": packed(poisoned(files))}))
    assert [sample.latency for sample in samples] == [np.float32(1e-3)] * 2
    assert [sample.jobs for sample in samples] == [mix.jobs for mix in mixes]
    assert model == "m"


def test_each_bar_is_judged() -> None:
    assert all(verdicts(["a", "b"], ["a", "b"], ["a", "b", "c"], 3, 1.0).values())
    assert list(verdicts(["a"], [], [], 2, 0.0).values()) == [False, False, False, False]
    assert list(verdicts(["a", "b"], ["b", "c"], ["b", "c"], 3, 1.0).values()) == [True, False, True, True]

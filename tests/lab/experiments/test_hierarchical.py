"""Experiment hierarchical: the paper's cluster, a day that can be drawn again, and what prediction changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.errors import InputError
from cotide_lab.experiments.hierarchical import schedule as hierarchical_experiment
from cotide_lab.experiments.hierarchical.data_center import (
    DAY_SAMPLES,
    MACHINES,
    Task,
    draw_tasks,
    draw_usage,
    usage_from_series,
)
from cotide_lab.experiments.hierarchical.engine_run import Drive, Outcome
from cotide_lab.experiments.hierarchical.forecasters import Known, Predicted, Present, slot_maxima
from cotide_lab.experiments.hierarchical.schedule import (
    BARS,
    JUDGED,
    PAPER,
    PLAIN,
    QUANTILES,
    RANDOM,
    REFUSE_ALL,
    RESERVE,
    RESERVES,
    WITHOUT,
    Row,
    Way,
    best_of,
    change,
    missed,
    play,
    run,
    ways,
    worse_than_reserve,
)
from cotide_sim.traces.load.load_series import LoadSeries

GRATIS, BATCH = WorkloadClass.GRATIS, WorkloadClass.BATCH


def played(tasks: list[Task], used: float, *, surge: tuple[int, float] | None = None) -> Outcome:
    """Play tasks beside production that uses a constant share, perhaps with a surge of a slot at one sample."""
    usage = np.full((2, len(MACHINES), 2 * DAY_SAMPLES), used)
    if surge is not None:
        first, height = surge
        usage[0, :, DAY_SAMPLES + first : DAY_SAMPLES + first + 15] = height
    config = SchedulerConfig(policy="hierarchical", seed=1, hierarchical=PLAIN)
    return Drive(tasks, usage, Present(), config, slot_seconds=300.0).run()


def task(number: int, cls: WorkloadClass, cpu: float, at: float = 0.0, seconds: float = 1500.0) -> Task:
    return Task(number, cls, at, seconds, cpu, 0.01)


def test_the_day_has_the_tasks_of_table_2_and_can_be_drawn_again() -> None:
    tasks = draw_tasks(3)
    assert [sum(one.workload_class is cls for one in tasks) for cls in (GRATIS, BATCH)] == [1754, 533]
    assert tasks == draw_tasks(3)
    assert tasks != draw_tasks(4)
    seconds = np.array([one.seconds for one in tasks])
    assert (seconds <= 300).mean() > 0.38, "more than 40 percent within 300 s, give or take the draw"
    assert 0.46 < (seconds <= 500).mean() < 0.54
    assert all(0 <= one.at_seconds < 86_400 for one in tasks)


def test_usage_is_a_share_and_real_series_take_the_place_of_generated_cpu() -> None:
    usage = draw_usage(3)
    assert usage.shape == (2, 6, 2 * DAY_SAMPLES)
    assert ((usage >= 0) & (usage < 1)).all()
    load = np.tile(np.linspace(0.1, 0.3, 288), (7, 2))
    load[0, 5] = np.nan
    real = usage_from_series(LoadSeries("own", tuple("abcdefg"), load), 3)
    assert np.isclose(real[0].mean(), 0.35, atol=0.01), "scaled to the mean share"
    assert np.array_equal(real[1], usage[1])


def test_slot_maxima_are_of_the_first_day() -> None:
    usage = np.zeros((2, 6, 2 * DAY_SAMPLES))
    usage[0, 2, 17] = 0.5
    usage[1, 5, DAY_SAMPLES] = 0.9
    maxima = slot_maxima(usage, 300.0)
    assert maxima.shape == (12, 288)
    assert maxima[2, 1] == 0.5, "sample 17 is in the second slot of 15 samples"
    assert maxima.sum() == 0.5


def test_tasks_that_fit_start_at_once_and_nothing_is_killed() -> None:
    outcome = played([task(number, GRATIS, 0.1, at=10.0 * number) for number in range(20)], 0.2)
    assert (outcome.overloads, outcome.kills, outcome.evictions, outcome.unfinished) == (0, 0, 0, 0)
    assert outcome.delays.tolist() == [0.0] * 20


def test_a_surge_of_production_kills_gratis_and_counts_one_overload_a_machine_and_slot() -> None:
    # 0.7 of machines of 1.0 or 0.5 is left; a surge to 0.95 for one slot from 600 s on overloads those with a task.
    outcome = played([task(0, GRATIS, 0.6), task(1, GRATIS, 0.6)], 0.3, surge=(30, 0.95))
    assert (outcome.overloads, outcome.kills) == (2, 2)
    assert outcome.unfinished == 0
    assert (outcome.delays >= 900.0).all(), "they start over once the surge is gone"


def test_batch_evicts_gratis_where_nothing_else_is_free() -> None:
    # The largest first, so that each finds its machine.
    sizes = sorted((machine.cpu for machine in MACHINES), reverse=True)
    hogs = [task(number, GRATIS, 0.7 * size - 0.01) for number, size in enumerate(sizes)]
    outcome = played([*hogs, task(6, BATCH, 0.3, at=60.0)], 0.3)
    assert outcome.evictions >= 1
    assert outcome.delays[6] == 0.0
    assert outcome.kills == 0


def test_the_same_day_gives_the_same_outcome() -> None:
    tasks, usage = draw_tasks(5, load=2.0)[:150], draw_usage(5)

    def outcome() -> Outcome:
        config = SchedulerConfig(policy="hierarchical", seed=1, hierarchical=PLAIN)
        return Drive(
            tasks_numbered(tasks), usage, Predicted(slot_maxima(usage, 300.0)), config, slot_seconds=300.0
        ).run()

    first, second = outcome(), outcome()
    assert np.array_equal(first.delays, second.delays)
    assert (first.overloads, first.kills, first.evictions) == (second.overloads, second.kills, second.evictions)


def tasks_numbered(tasks: list[Task]) -> list[Task]:
    return [
        Task(number, one.workload_class, one.at_seconds, one.seconds, one.cpu, one.memory)
        for number, one in enumerate(tasks)
    ]


def test_a_task_that_was_taken_off_lost_what_it_ran_and_its_first_start_is_kept_apart() -> None:
    # It starts at 0 and is killed by the surge at 600 s.
    outcome = played([task(0, GRATIS, 0.6), task(1, GRATIS, 0.6)], 0.3, surge=(30, 0.95))
    assert outcome.first_delays.tolist() == [0.0, 0.0]
    assert outcome.lost.tolist() == [600.0, 600.0]


def test_run_times_have_the_tail_of_the_trace() -> None:
    beyond = np.array(
        [draw_task.seconds for seed in range(4) for draw_task in draw_tasks(seed) if draw_task.seconds > 500.0]
    )
    # 4,600 draws: the spread is known to about a hundredth.
    assert abs(np.sqrt((np.log(beyond / 500.0) ** 2).mean()) - 1.57) < 0.05
    assert beyond.max() <= 17 * 3600


def test_a_high_quantile_of_what_will_be_held_leaves_more_room_than_the_point() -> None:
    usage = draw_usage(3)
    plain = Predicted(slot_maxima(usage, 300.0))
    careful = Predicted(slot_maxima(usage, 300.0), online="p99", batch="p99")
    nothing = np.zeros((2, len(MACHINES)))
    generator = np.random.default_rng(0)
    for _ in range(20):
        held = generator.uniform(0.1, 0.4, (2, len(MACHINES)))
        for forecaster in (plain, careful):
            forecaster.record(nothing, held)
    (_, low_batch), (_, high_batch) = (one.forecast(nothing, nothing) for one in (plain, careful))
    assert high_batch.sum() > low_batch.sum()


def test_the_truth_is_the_peak_of_this_slot_and_the_next() -> None:
    usage = np.zeros((2, 6, 2 * DAY_SAMPLES))
    usage[0, 1, 29] = 0.7  # the last sample of the second slot of 15
    usage[0, 1, 30] = 0.9
    known = Known(usage, 300.0)
    nothing = np.zeros((2, len(MACHINES)))
    assert known.forecast(nothing, nothing)[0][0, 1] == 0.7
    known.record(nothing, nothing)
    assert known.forecast(nothing, nothing)[0][0, 1] == 0.9


def test_the_papers_own_figures_reach_its_bars_and_worse_ones_are_named() -> None:
    ours = replace(PAPER[3], name=JUDGED)
    assert missed([PAPER[0], ours]) == []
    assert all(-by >= bar for by, (_, bar) in zip(change(PAPER[0], ours), BARS, strict=True))
    assert missed([PAPER[0], replace(ours, overloads=58)]) == [
        "ours: overloads fell by 50% (116 to 58), the bar is 85%"
    ]


def row_of(way: Way, seed: int, *, delay: float, overloads: float) -> Row:
    return Row(
        way.name, "here", way.slot_seconds, overloads, 10.0, float(seed), undelayed=5, mean_delay=delay,
        max_delay=1000.0 * (seed + 1), batch_delay=1.0, gratis_delay=2.0, first_delay=3.0, lost=4.0, delay_p95=50.0,
        delay_p99=90.0,
    )  # fmt: skip


def by_hand(way: Way, seed: int, *_: object) -> Row:
    """Without prediction a day takes 300 s and the day of seed 2 3000 s; ours takes half of it, and 150 s on seed 2.

    A reserve of a tenth for production alone and p99 are the best of their knobs.
    """
    if way.sees == "present":
        delay = 3000.0 if seed == 2 else 300.0
        return row_of(way, seed, delay=delay, overloads=100.0)
    best = way.reserves == (0.10, 0.0) or (way.online, way.batch) == ("p99", "p99")
    return row_of(way, seed, delay=150.0, overloads=10.0 if best else 50.0)


def test_days_are_averaged_and_each_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchical_experiment, "play", by_hand)
    said: list[str] = []
    report = run(seeds=(0, 2), slot_sizes=(300.0,), progress=said.append)
    rows = {row.name: row for row in report.rows if row.source == "here"}
    assert (rows[JUDGED].overloads, rows[JUDGED].evictions, rows[JUDGED].mean_delay) == (10.0, 1.0, 150.0)
    assert rows[JUDGED].max_delay == 3000.0, "the longest of all, not their mean"
    assert "ours: kills and evictions fell by 0% (11 to 11), the bar is 60%" in report.missed
    assert len(said) == 2 * len(rows) + 2 * (1 + len(RESERVES) + len(QUANTILES))


def test_ours_and_the_reserve_choose_from_as_many_settings_on_days_that_are_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hierarchical_experiment, "play", by_hand)
    report = run(seeds=(0,), slot_sizes=(300.0,))
    assert (report.reserves, report.quantiles) == ((0.10, 0.0), ("p99", "p99"))
    assert len(RESERVES) == len(QUANTILES)
    with pytest.raises(InputError, match="chosen on seed 101"):
        run(seeds=(100, 101))


def test_a_setting_under_which_tasks_wait_longer_is_chosen_last() -> None:
    before = Row(WITHOUT, "here", 300, 100, 50, 50, 0, 100.0, 900.0, delay_p95=200.0, delay_p99=400.0)
    still = replace(before, overloads=0, kills=0, evictions=0, delay_p99=401.0)
    gentle = replace(before, overloads=60, mean_delay=90.0)
    assert best_of(["still", "gentle"], before, [still, gentle]) == "gentle"
    assert best_of(["still", "gentle"], before, [replace(still, delay_p99=400.0), gentle]) == "still"


def test_the_change_of_the_delay_is_reported_without_the_worst_day_and_as_a_median(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hierarchical_experiment, "play", by_hand)
    report = run(seeds=(0, 1, 2), slot_sizes=(300.0,))
    ours = next(one for one in report.changes if one.name == JUDGED)
    # 150 s of (300 + 300 + 3000) / 3 = 1200 s: -87.5 %; by day -50, -50 and -95 %; without the last 150 of 300 s.
    assert ours.of_means == pytest.approx(-0.875)
    assert ours.by_day.median == pytest.approx(-0.5)
    assert ours.without_worst == pytest.approx(-0.5)


def test_prediction_is_judged_with_the_victims_of_the_baseline() -> None:
    compared = {way.name: way for way in ways((300.0,), (0.05, 0.05), ("p90", "p90"))}
    assert compared[WITHOUT].knobs == compared[JUDGED].knobs == compared[RESERVE].knobs
    assert compared[WITHOUT + RANDOM].knobs == compared[JUDGED + RANDOM].knobs == PLAIN


def test_who_predicts_nothing_and_who_starts_nothing_miss_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = play(Way(REFUSE_ALL, 300.0, "present", PLAIN), 3)
    # 2287 tasks of one day wait until the end of the third.
    assert (whole.unfinished, whole.overloads) == (2287, 0)
    assert 2 * 86_400 < whole.mean_delay < 3 * 86_400

    def with_refused(way: Way, seed: int, *_: object) -> Row:
        return replace(whole, slot_seconds=way.slot_seconds) if way.name == REFUSE_ALL else by_hand(way, seed)

    monkeypatch.setattr(hierarchical_experiment, "play", with_refused)
    report = run(seeds=(0,), slot_sizes=(300.0,))
    # No prediction: three bars. Refusing all avoids each overload, kill and eviction, and lets all tasks wait.
    assert report.inactive == {WITHOUT: 3, REFUSE_ALL: 4}


def test_what_a_static_reserve_does_better_is_named() -> None:
    ours = replace(PAPER[3], name=JUDGED)
    reserve = replace(PAPER[3], name=RESERVE, overloads=13, mean_delay=400.0)
    assert worse_than_reserve([PAPER[0], reserve, ours], ours) == ["ours: overloads 14, with the static reserve 13"]

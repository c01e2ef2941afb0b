"""Experiment placement: what each contender may choose from."""

from __future__ import annotations

from cotide_lab.experiments.placement.contenders import BANDS, CONTENDERS, DO_NOTHING, QUANTILES, REFUSE_ALL


def test_every_contender_with_a_knob_has_ten_settings() -> None:
    sizes = {name: len(set(one.settings)) for name, one in CONTENDERS.items()}
    assert {name for name, size in sizes.items() if size == 1} == {DO_NOTHING, REFUSE_ALL}
    assert {size for name, size in sizes.items() if name not in (DO_NOTHING, REFUSE_ALL)} == {10}
    assert len(QUANTILES) * len(BANDS) == 10


def test_yesterday_may_keep_as_much_room_as_a_rising_week_asks_for() -> None:
    """On the tuning seeds of WorldCup98 the best reserve lies above 1.6, the largest that it had."""
    reserves = sorted({reserve for reserve, _ in CONTENDERS["yesterday"].settings})
    assert reserves[0] < 1.6 < reserves[-1]

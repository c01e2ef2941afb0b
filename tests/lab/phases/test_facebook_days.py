"""SWIM's logs: what a line means, what is refused, and the model that makes tasks of bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from repository import DATA

from cotide_core.errors import InputError
from cotide_lab.phases.swim_model import drawn_hours, facebook_day
from cotide_sim.traces.mapreduce.swim import FILES, read_swim

MAP_ONLY = "job0\t10\t10\t268435456\t0\t1000\n"  # two blocks of 128 MiB
SHUFFLING = "job1\t20\t10\t1000\t3000000000\t500\n"


def log(folder: Path, text: str) -> Path:
    path = folder / "log.tsv"
    path.write_text(text)
    return path


def test_maps_follow_blocks_and_reduces_follow_the_shuffle(tmp_path: Path) -> None:
    day = facebook_day(read_swim(log(tmp_path, MAP_ONLY + SHUFFLING), "facebook-2009"), 0)
    assert day.submitted.tolist() == [10_000, 20_000]
    assert [(stage.job, stage.tasks, stage.reduces) for stage in day.stages] == [
        (0, 2, False),
        (1, 23, False),  # 3 GB left by the maps
        (1, 3, True),
    ]
    assert [phase.name for phase in day.stages[2].true.phases] == ["shuffle", "sort", "reduce"]


def test_the_larger_cluster_is_scaled_to_the_smaller_one(tmp_path: Path) -> None:
    path = log(tmp_path, SHUFFLING)
    assert facebook_day(read_swim(path, "facebook-2010"), 0).stages[1].tasks == 1  # 3 GB / 5
    assert facebook_day(read_swim(path, "facebook-2009"), 0).stages[1].tasks == 3


def test_seeds_draw_other_hours_and_those_for_tuning_share_none_with_a_report(tmp_path: Path) -> None:
    lines = "".join(f"job{hour}\t{3600 * hour + 7}\t10\t{hour + 1}\t0\t1\n" for hour in range(24))
    whole = read_swim(log(tmp_path, lines), "facebook-2009")
    # A job an hour, which reads as many bytes as the hour's number and one.
    one, other, tuning = (drawn_hours(whole, seed, 6, tuning=seed == 101) for seed in (0, 1, 101))
    assert one.submitted.tolist() == [7.0 + 3600 * hour for hour in range(6)]
    assert {*one.read_bytes, *other.read_bytes} <= set(range(2, 25, 2))
    assert set(tuning.read_bytes) <= set(range(1, 24, 2))
    assert one.read_bytes.tolist() != other.read_bytes.tolist()


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        (MAP_ONLY + "job1\t20\t10\t1\t2\n", 2, None),
        ("job0\t10\t10\tmany\t0\t0\n", 1, "input bytes"),
        ("job0\t10\t10\t-1\t0\t0\n", 1, "input bytes"),
        ("job0\t10\t10\t1\tnan\t0\n", 1, "shuffle bytes"),
        ("job0\t10\t10\t1\t1\t1e300\n", 1, "output bytes"),
        (SHUFFLING + MAP_ONLY, 2, "submission"),
        ("", 1, None),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, text: str, line: int, field: str | None) -> None:
    with pytest.raises(InputError) as refused:
        read_swim(log(tmp_path, text), "facebook-2009")
    assert (refused.value.line, refused.value.field) == (line, field)


def test_a_missing_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="SWIM"):
        read_swim(tmp_path / "none.tsv", "facebook-2009")


@pytest.mark.data
@pytest.mark.skipif(not (DATA / "mapreduce").is_dir(), reason=f"no logs at {DATA}; name their parent in COTIDE_DATA")
def test_the_day_of_2009_has_its_jobs() -> None:
    day = facebook_day(read_swim(DATA / "mapreduce" / FILES["facebook-2009"], "facebook-2009"), 0)
    assert len(day.submitted) == 5894

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_kube.timestamps import format_micro_timestamp, format_timestamp, parse_timestamp

SECONDS = st.integers(min_value=0, max_value=4_102_444_800)


def test_a_time_is_seconds_since_the_epoch():
    # 2026-11-20 is day 20,777 of the epoch: 20,777 * 86,400 = 1,795,132,800; 13 h more are 46,800 s.
    assert parse_timestamp("2026-11-20T13:00:00Z") == 1_795_132_800 + 46_800


def test_an_offset_is_taken_into_account():
    assert parse_timestamp("2026-11-20T13:00:00+01:00") == parse_timestamp("2026-11-20T12:00:00Z")


@given(SECONDS)
def test_whole_seconds_survive_writing_and_reading(seconds):
    assert parse_timestamp(format_timestamp(seconds)) == seconds


@given(SECONDS, st.integers(min_value=0, max_value=999_999))
def test_micro_times_keep_six_decimals(seconds, microseconds):
    moment = seconds + microseconds / 1e6
    assert parse_timestamp(format_micro_timestamp(moment)) == pytest.approx(moment, abs=1e-6)


def test_a_time_is_cut_off_and_never_lies_in_the_future():
    assert format_timestamp(59.999) == "1970-01-01T00:00:59Z"


@pytest.mark.parametrize("text", ["yesterday", "2026-11-20T13:00:00", "", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_named(text):
    with pytest.raises(InputError) as caught:
        parse_timestamp(text)
    assert repr(text) in str(caught.value)

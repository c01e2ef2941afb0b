"""A generator that reads late makes no server slow, and where the kernel gives no times, it says so."""

from __future__ import annotations

import math
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import numpy as np
import pytest

from cotide_lab.profile import receive_times, tcp_load
from cotide_lab.profile.open_loop import LoadReport
from cotide_lab.profile.receive_times import StampClock, ask_for_stamps, received, stamped_share

HOUR = 3600.0


@contextmanager
def line_server(
    delay: Callable[[], object] = lambda: None, greeting: bytes = b"", answered: bytes = b"+PONG\r\n"
) -> Iterator[int]:
    """Answer each line with one after ``delay``, a thread for each connection; yield the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines, suppress(OSError):  # whoever has enough closes
            connection.sendall(greeting)
            for _ in lines:
                delay()
                connection.sendall(answered)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def stamped_connection(port: int, clock: StampClock) -> tcp_load.Connection:
    """Return a connection whose last answer had a stamp."""
    one = tcp_load.Connection("127.0.0.1", port, 0)
    for _ in range(10_000):
        one.send(b"PING\r\n")
        select.select([one.socket], (), (), 10.0)
        one.read(HOUR, clock)
        if not math.isnan(one.stamps[-1]):
            return one
    raise AssertionError("this kernel stamps nothing")


@pytest.fixture
def stamps_already() -> Iterator[None]:
    """Have the kernel stamp before the test begins: for the first who asks it begins a moment later."""
    with line_server() as port, closing(stamped_connection(port, StampClock(0.0)).socket):
        yield


@pytest.fixture
def reads_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the generator think that it reads each answer an hour after it came."""
    read = tcp_load.Connection.read
    monkeypatch.setattr(tcp_load.Connection, "read", lambda one, now, clock: read(one, now + HOUR, clock))


def measured(port: int, warm_up: float = 0.1, harm: float = math.inf) -> LoadReport:
    return tcp_load.measure(f"tcp://127.0.0.1:{port}", 200.0, warm_up, 0.3, request=r"PING\r\n", harm=harm, seed=1)


def test_an_answer_that_is_read_late_was_there_when_it_came() -> None:
    clock = StampClock(time.perf_counter())
    with line_server() as port:
        one = stamped_connection(port, clock)
        with closing(one.socket):
            there, _ = one.received(by_stamps=True)
    assert 0 < there[-1] < HOUR / 2


def test_without_stamps_an_answer_was_there_when_it_was_read() -> None:
    clock = StampClock(time.perf_counter())
    with line_server() as port:
        one = stamped_connection(port, clock)
        with closing(one.socket):
            there, stamps = one.received(by_stamps=False)
    assert set(there) == {HOUR}
    assert np.isnan(stamps).all()


@pytest.mark.parametrize(
    "says", [{"greeting": b"220 mail ready\r\n"}, {"answered": b"$4\r\nPONG\r\n"}], ids=["a greeting", "two lines"]
)
def test_a_server_that_says_more_than_a_line_for_each_request_is_not_measured(says: dict[str, bytes]) -> None:
    with line_server(**says) as port, pytest.raises(tcp_load.Refused, match="must answer each with one"):
        measured(port)


@pytest.mark.usefixtures("stamps_already", "reads_late")
def test_a_late_reader_makes_no_server_slow() -> None:
    with line_server() as port:
        found = measured(port)
    assert found.kernel_share == 1.0
    assert found.p999_ms < 1000.0 * HOUR / 2
    assert found.reading_lag_ms is not None
    assert found.reading_lag_ms > 1000.0 * HOUR / 2


@pytest.mark.parametrize(("came", "cut"), [(-1.0, False), (math.nan, True)])
def test_a_window_is_cut_by_when_answers_came_and_not_by_when_they_were_read(
    monkeypatch: pytest.MonkeyPatch, came: float, cut: bool
) -> None:
    """All are read later than the harm of a nanosecond; by their stamps they came before the window began."""
    monkeypatch.setattr(StampClock, "seconds", lambda clock, ancillary: came)
    with line_server() as port:
        assert measured(port, harm=1e-9).cut is cut


@pytest.mark.usefixtures("reads_late")
def test_a_kernel_without_stamps_leaves_the_readers_time_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_load, "ask_for_stamps", lambda connection: False)
    with line_server() as port:
        found = measured(port)
    assert found.kernel_share == 0.0
    assert found.reading_lag_ms is None
    assert found.p50_ms > 1000.0 * HOUR / 2


@pytest.mark.usefixtures("reads_late")
def test_a_clock_that_was_set_meanwhile_makes_stamps_worthless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StampClock, "was_set", lambda clock: True)
    with line_server() as port:
        found = measured(port)
    assert found.kernel_share == 0.0
    assert found.p50_ms > 1000.0 * HOUR / 2


@pytest.mark.usefixtures("stamps_already")
def test_what_the_server_takes_counts_whole() -> None:
    """Each answer comes 30 ms after its request was read: no latency is below that, by whatever clock."""
    with line_server(lambda: threading.Event().wait(0.03)) as port:
        found = measured(port, 0.1)
    assert found.kernel_share == 1.0
    assert found.p50_ms >= 30.0


def test_a_socket_that_takes_no_such_option_has_no_stamps() -> None:
    class Refusing:
        def setsockopt(self, *_: object) -> None:
            raise OSError(92, "Protocol not available")

    assert not ask_for_stamps(Refusing())  # type: ignore[arg-type]  # stands for a socket of an old kernel


def stamp(seconds: int, nanoseconds: int) -> tuple[int, int, bytes]:
    data = struct.pack("@6l", seconds, nanoseconds, 0, 0, 0, 0)
    return (socket.SOL_SOCKET, receive_times.SO_TIMESTAMPING, data)


def test_a_stamp_is_told_in_seconds_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The day's clock is 1,000 s ahead and the window began at 5 s: 1,006.5 s of the day is 1.5 s of it."""
    monkeypatch.setattr(receive_times, "_day_over_steady", lambda: 1_000_000_000_000)
    clock = StampClock(5.0)
    assert clock.seconds([stamp(1006, 500_000_000)]) == 1.5
    assert math.isnan(clock.seconds([]))
    assert math.isnan(clock.seconds([stamp(0, 0)]))
    assert math.isnan(clock.seconds([(socket.SOL_SOCKET, 29, b"\0" * 48)]))
    assert not clock.was_set()


def test_a_clock_that_jumped_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StampClock(0.0)
    before = clock._offset
    monkeypatch.setattr(receive_times, "_day_over_steady", lambda: before + 1_000_000)
    assert clock.was_set()


def test_no_answer_was_there_after_it_was_read_and_one_without_a_stamp_when_it_was() -> None:
    there = received(np.array([1.0, 2.0, 3.0]), np.array([0.5, np.nan, 3.5]))
    assert there.tolist() == [0.5, 2.0, 3.0]


def test_the_share_with_stamps_counts_answers_not_readings() -> None:
    assert stamped_share(np.array([3.0, 1.0]), np.array([np.nan, 0.5])) == 0.25
    assert stamped_share(np.array([]), np.array([])) == 0.0

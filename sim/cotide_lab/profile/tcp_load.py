"""An open-loop load generator for memcached and for any protocol with one-line answers.

Run by `meters` as a process of its own (``python -m cotide_lab.profile.tcp_load``), so that it can have its own core.
It polls without a pause, and never misses an arrival. With a real-time priority on a shared core it may sleep
(``--sleeps``). Then the kernel wakes it at once, and it starves no other process. First the cache is filled. Each
request is a hit of the same length, so that answers are counted by their bytes. Lines are counted by their breaks. The
time of an answer is its arrival in the kernel (`receive_times`), not the time of its reading. Late sending counts as
latency.

Prints one JSON line (`open_loop.LoadReport`), or one sentence on stderr and exit code 1. Invariant: a request is sent
once it is due, whatever the outcome of earlier ones.
"""

from __future__ import annotations

import gc
import json
import random
import select
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import BinaryIO, Final, NamedTuple

import click
import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.units import counted
from cotide_lab.profile.open_loop import LoadReport, arrivals, latencies, report
from cotide_lab.profile.receive_times import (
    ANCILLARY_BYTES,
    StampClock,
    ask_for_stamps,
    reading_lag,
    received,
    stamped_share,
)

VALUE_BYTES: Final = 100
KEYS: Final = 100_000
CONNECTIONS: Final = 16
LATE_SHARE: Final = 0.05
"""When more than this share is above the harm, the p95 is above the harm, by definition."""
DRAIN_SECONDS: Final = 1.0
"""Seconds to wait for answers after the last request (chosen)."""
TIMEOUT_SECONDS: Final = 10.0
"""Limit in seconds for connecting and filling (chosen)."""
AWAKE_SECONDS: Final = 50e-6
"""Seconds before an arrival when a sleeping generator wakes; chosen: the delay of a virtual machine's timer."""
_CHUNK: Final = 1 << 16


class Refused(Exception):
    """The server does not meet the conditions of a measurement; one sentence."""


class Driven(NamedTuple):
    """Result of a window: its end, the mean lag of sending, in seconds, and possible faults.

    Attributes
    ----------
    cut : whether it was stopped early.
    clock_set : whether the clock of the day was set meanwhile, which makes stamps invalid.
    """

    end: float
    lag: float
    cut: bool
    clock_set: bool


class Connection:
    """One connection: its requests in order, and the number of answers over time."""

    def __init__(self, host: str, port: int, answer_bytes: int) -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ancillary = ANCILLARY_BYTES if ask_for_stamps(self.socket) else 0
        self._buffer = bytearray(_CHUNK)
        self.answer_bytes = answer_bytes
        self.unsent = b""
        self.due: list[float] = []
        self.bytes = 0
        self.answers = 0
        self.answered: list[int] = []
        self.read_at: list[float] = []
        self.stamps: list[float] = []

    def send(self, data: bytes) -> None:
        """Send as much as the kernel takes; the rest goes first the next time."""
        data = self.unsent + data
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        self.unsent = data[sent:]

    def read(self, now: float, clock: StampClock) -> int:
        """Read the available data; return its number of answers."""
        try:
            count, ancillary, _, _ = self.socket.recvmsg_into([self._buffer], self._ancillary)
        except BlockingIOError:
            return 0
        if not count:
            raise Refused("the server closed a connection")
        before = self.answers
        if self.answer_bytes:
            self.bytes += count
            self.answers = self.bytes // self.answer_bytes
        else:
            self.answers += self._buffer.count(b"\n", 0, count)
        self.answered.append(self.answers)
        self.read_at.append(now)
        self.stamps.append(clock.seconds(ancillary))
        return self.answers - before

    def received(self, *, by_stamps: bool) -> tuple[Floats, Floats]:
        """Return (n,) arrival times of each reading's data, in seconds, and its stamps, nan without a stamp."""
        read_at = np.asarray(self.read_at, np.float64)
        stamps = np.asarray(self.stamps, np.float64) if by_stamps else np.full(len(read_at), np.nan)
        return received(read_at, stamps), stamps


def fill_memcached(host: str, port: int) -> tuple[list[bytes], int]:
    """Store the keys in memcached; return the requests and the bytes of each answer."""
    keys = [f"cotide{number:07d}" for number in range(KEYS)]
    value = b"x" * VALUE_BYTES
    length = len(f"VALUE {keys[0]} 0 {VALUE_BYTES}\r\n") + VALUE_BYTES + len("\r\nEND\r\n")
    requests = [f"get {key}\r\n".encode() for key in keys]
    with socket.create_connection((host, port), TIMEOUT_SECONDS) as connection:
        stored = connection.makefile("rb")
        if _has(connection, stored, keys[0]) and _has(connection, stored, keys[-1]):
            return requests, length  # an earlier window filled it
        for begin in range(0, KEYS, 500):
            some = keys[begin : begin + 500]
            connection.sendall(b"".join(b"set %b 0 0 %d\r\n%b\r\n" % (k.encode(), VALUE_BYTES, value) for k in some))
            if any(stored.readline() != b"STORED\r\n" for _ in some):
                raise Refused("memcached did not store a key: give it 64 MB or more")
        if not _has(connection, stored, keys[0]):
            raise Refused("memcached forgot a key at once: give it 64 MB or more")
    return requests, length


def _has(connection: socket.socket, answers: BinaryIO, key: str) -> bool:
    """Whether a key is stored with a value of the right length."""
    connection.sendall(f"get {key}\r\n".encode())
    first = answers.readline()
    if not first.startswith(b"VALUE "):
        return False
    length = int(first.split()[3])
    answers.read(length + len(b"\r\nEND\r\n"))
    return length == VALUE_BYTES


def drive(
    connections: Sequence[Connection],
    due: Sequence[float],
    requests: Sequence[bytes],
    warm_up: float,
    harm: float,
    *,
    sleeps: bool = False,
) -> Driven:
    """Send requests when they are due, until the last one is answered or the wait ends.

    Parameters
    ----------
    due : seconds from the beginning, rising.
    harm : seconds; once more than `LATE_SHARE` of the window's requests certainly took longer, the rest is skipped.
    sleeps : wait until an answer comes or a request is due, instead of polling.
    """
    poll = select.epoll()
    at = {connection.socket.fileno(): connection for connection in connections}
    for one in connections:
        one.socket.setblocking(False)
        poll.register(one.socket.fileno(), select.EPOLLIN)
    count, many, last = len(due), len(connections), due[-1] + DRAIN_SECONDS
    kinds, draw = len(requests), random.Random(1).random
    allowed = LATE_SHARE * sum(moment >= warm_up for moment in due)
    sent, got, late, turn, lag = 0, 0, 0, 0, 0.0
    stuck: list[Connection] = []
    clock = time.perf_counter
    begin = clock()
    stamps = StampClock(begin)
    while True:
        now = clock() - begin
        if sent < count and due[sent] <= now:
            # All due requests go out together: A higher load needs fewer kernel calls per request.
            one, batch = connections[turn % many], []
            while sent < count and due[sent] <= now:
                one.due.append(due[sent])
                lag += now - due[sent]
                batch.append(requests[int(draw() * kinds)])
                sent += 1
            one.send(b"".join(batch))
            turn += 1
            if one.unsent and one not in stuck:
                stuck.append(one)
        if sleeps and not stuck:
            pause = (due[sent] if sent < count else last) - (clock() - begin) - AWAKE_SECONDS
            if pause > 0:
                select.select(list(at), (), (), pause)  # epoll counts in milliseconds
        for number, _ in poll.poll(0):
            one = at[number]
            now = clock() - begin
            answers = one.read(now, stamps)
            if not answers:
                continue
            _check_asked(one)
            got += answers
            came = min(now, one.stamps[-1])  # now, without a stamp: every comparison with nan is false
            newest = one.due[one.answers - 1]
            # All of these are at least as late as the newest of them.
            if came - newest > harm and newest - warm_up >= 0:
                late += answers
        if got >= count or now >= last or late > allowed:
            return Driven(now, lag / max(1, sent), late > allowed, stamps.was_set())
        for one in stuck:
            one.send(b"")
        stuck = [connection for connection in stuck if connection.unsent]


def _check_asked(one: Connection) -> None:
    """Raise `Refused` for surplus answers: each one would be assigned to a wrong request."""
    if one.answers > len(one.due):
        lines = f"{one.answers} lines came for {counted(len(one.due), 'request')}"
        raise Refused(f"{lines} on a connection: it must answer each with one, and send nothing unasked")


def measure(
    target: str,
    rate: float,
    warm_up: float,
    seconds: float,
    *,
    request: str,
    harm: float,
    seed: int,
    sleeps: bool = False,
) -> LoadReport:
    """Measure one window."""
    scheme, _, address = target.partition("://")
    host, _, port = address.rpartition(":")
    if scheme == "memcached":
        requests, answer_bytes = fill_memcached(host, int(port))
    else:
        requests, answer_bytes = [request.encode().decode("unicode_escape").encode("latin-1")], 0
    connections = [Connection(host, int(port), answer_bytes) for _ in range(CONNECTIONS)]
    due = arrivals(rate, warm_up + seconds, seed)
    if not (due >= warm_up).any():
        raise Refused(f"no request is due within {seconds:g} s at {rate:g}/s: the window is too short")
    collects = gc.isenabled()
    gc.disable()
    try:
        driven = drive(connections, due.tolist(), requests, warm_up, harm, sleeps=sleeps)
    finally:
        if collects:
            gc.enable()
    found, missing = [], 0
    for connection in connections:
        own = np.asarray(connection.due)
        if answer_bytes and connection.answers >= len(own) and connection.bytes != len(own) * answer_bytes:
            raise Refused("memcached gave answers of another length: it forgets keys, give it 64 MB or more")
        there, _ = connection.received(by_stamps=not driven.clock_set)
        taken, _ = latencies(own, np.asarray(connection.answered), there, driven.end)
        inside = own >= warm_up
        found.append(taken[inside])
        missing += int(inside[connection.answers :].sum())
        connection.socket.close()
    share, reading = readings_of(connections, warm_up, by_stamps=not driven.clock_set)
    lasted = seconds if not driven.cut else max(driven.end - warm_up, 1e-3)
    return report(
        np.concatenate(found),
        missing,
        lasted,
        driven.lag,
        cut=driven.cut,
        kernel_share=share,
        reading_lag_seconds=reading,
    )


def readings_of(connections: Sequence[Connection], warm_up: float, *, by_stamps: bool) -> tuple[float, float]:
    """Return the share of answers with a time from the kernel, and the mean lag of reading them, in seconds.

    Only readings after the warm-up count: a kernel without earlier stamping begins a moment after the request.
    """
    answers, read_at, stamps = [], [], []
    for connection in connections:
        answers.append(np.diff(np.asarray(connection.answered, np.float64), prepend=0.0))
        read_at.append(np.asarray(connection.read_at, np.float64))
        stamps.append(connection.received(by_stamps=by_stamps)[1])
    moments = np.concatenate(read_at)
    inside = moments >= warm_up
    known = np.concatenate(stamps)[inside]
    return stamped_share(np.concatenate(answers)[inside], known), reading_lag(moments[inside], known)


@click.command()
@click.option("--target", required=True)
@click.option("--rate", type=float, required=True)
@click.option("--seconds", type=float, required=True)
@click.option("--warm-up", type=float, default=0.0)
@click.option("--request", default=r"PING\r\n")
@click.option("--harm-ms", type=float, default=float("inf"))
@click.option("--seed", type=int, default=0)
@click.option("--sleeps", is_flag=True)
def main(
    target: str, rate: float, seconds: float, warm_up: float, request: str, harm_ms: float, seed: int, sleeps: bool
) -> None:
    """Measure the p95 latency of TARGET (memcached://HOST:PORT or tcp://HOST:PORT) at RATE requests a second."""
    try:
        found = measure(
            target, rate, warm_up, seconds, request=request, harm=harm_ms / 1000.0, seed=seed, sleeps=sleeps
        )
    except (OSError, Refused) as error:
        click.echo(f"{target}: {error}", err=True)
        sys.exit(1)
    click.echo(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()

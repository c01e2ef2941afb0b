"""Times when answers reached this machine, by its kernel: late reading in the generator must not make a server look
slow.

Used by `tcp_load`. Linux stamps each packet as it comes in, and gives the stamp with the data (SO_TIMESTAMPING, on TCP
since 4.14; https://docs.kernel.org/networking/timestamping.html). Data of several packets in one reading has the stamp
of the last, so that a stamp is never too early. Older kernels, and sandboxes that emulate the kernel, give none.
Invariant: a missing stamp is reported and never guessed.
"""

from __future__ import annotations

import math
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats

SO_TIMESTAMPING: Final = 37
"""asm-generic/socket.h; the module `socket` does not name it. The same number names the message with the stamps."""
RX_SOFTWARE_AND_REPORT: Final = (1 << 3) | (1 << 4)
"""SOF_TIMESTAMPING_RX_SOFTWARE: stamp in the kernel; SOF_TIMESTAMPING_SOFTWARE: report (linux/net_tstamp.h)."""
_STAMPS: Final = struct.Struct("@6l")
"""scm_timestamping: three times of seconds and nanoseconds, the first by software (linux/errqueue.h)."""
ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_STAMPS.size)
"""Bytes that a reading needs in addition to the data."""
STEP_SECONDS: Final = 50e-6
"""A clock of the day that moved by more against the steady clock was set meanwhile; chosen: above any reading's
error."""
_READINGS: Final = 5
"""Comparisons of two clocks; the quickest one counts (chosen)."""

Ancillary = Sequence[tuple[int, int, bytes]]


def ask_for_stamps(connection: socket.socket) -> bool:
    """Make the kernel stamp incoming data; return whether it does."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE_AND_REPORT)
    except OSError:
        return False
    return True


class StampClock:
    """Stamps, which are times of the day, as seconds since ``begin`` of the steady clock (`time.perf_counter`)."""

    def __init__(self, begin: float) -> None:
        self._begin_nanoseconds = round(begin * 1e9)
        self._offset = _day_over_steady()

    def seconds(self, ancillary: Ancillary) -> float:
        """Return the arrival time of data that was read with these messages; nan without a stamp."""
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPING and len(data) >= _STAMPS.size:
                whole, rest, *_ = _STAMPS.unpack_from(data)
                day: int = whole * 1_000_000_000 + rest
                if day:
                    return (day - self._offset - self._begin_nanoseconds) / 1e9
        return math.nan

    def was_set(self) -> bool:
        """Whether the clock of the day was set since this object was made: stamps before and after differ then."""
        return abs(_day_over_steady() - self._offset) > STEP_SECONDS * 1e9


def received(read_at: Floats, stamps: Floats) -> Floats:
    """Return (n,) arrival times of data: its stamp, or the time of reading without one (nan), and never later than
    that."""
    found: Floats = np.fmin(read_at, stamps)
    return found


def stamped_share(answers: Floats, stamps: Floats) -> float:
    """Return the share of answers with a stamped reading, 0 to 1.

    Parameters
    ----------
    answers : (n,) of each reading.
    stamps : (n,) of each reading; nan without one.
    """
    total = float(answers.sum())
    return float(answers[~np.isnan(stamps)].sum()) / total if total else 0.0


def reading_lag(read_at: Floats, stamps: Floats) -> float:
    """Return the mean wait of stamped data for its reader, in seconds; nan without stamped data."""
    known = ~np.isnan(stamps)
    return float(np.maximum(read_at - stamps, 0.0)[known].mean()) if known.any() else math.nan


def _day_over_steady() -> int:
    """Return the clock of the day minus the steady one, in nanoseconds, from the quickest comparison."""
    best, least = 0, sys.maxsize
    for _ in range(_READINGS):
        before = time.perf_counter_ns()
        day = time.time_ns()
        after = time.perf_counter_ns()
        if after - before < least:
            best, least = day - (before + after) // 2, after - before
    return best

"""Ctrl-C while the workers of a sweep start: none of them hears it, none is left behind, and nothing is said of it."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import joblib
import pytest
from joblib.externals.loky import process_executor

from cotide_lab.sweeps.pool import Call, Pool
from cotide_lab.sweeps.stopping import Stopped, StopSignals, held_while_starting


def blocked_signals():
    status = Path("/proc/self/status").read_text()
    mask = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:")), 16)
    return {number for number in (signal.SIGINT, signal.SIGTERM) if mask >> (number - 1) & 1}


def nap(number):
    time.sleep(0.05)
    return number


def calls(function, count):
    return [Call(str(n), partial(function, n), (), partial(function, n), str) for n in range(count)]


def worker_mask(_number):
    return blocked_signals()


def warnings_of_stopped_run():
    def run():
        with StopSignals():
            list(Pool(2).run(calls(nap, 8)))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(Stopped):
            run()
    return [str(one.message) for one in said]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_workers_are_born_deaf_to_ctrl_c_and_hear_sigterm():
    found = list(Pool(2).run(calls(worker_mask, 4)))
    assert found == [{signal.SIGINT}] * 4
    assert blocked_signals() == set()


def test_a_signal_while_workers_start_ends_the_sweep_without_a_warning(monkeypatch):
    configured = joblib.parallel_config

    @contextmanager
    def interrupted(**how):
        with configured(**how):
            yield
        signal.raise_signal(signal.SIGINT)  # all have started, and nobody holds their answers yet

    monkeypatch.setattr(joblib, "parallel_config", interrupted)
    assert warnings_of_stopped_run() == []


def test_nothing_is_said_where_the_workers_had_not_been_given_all_calls_yet(monkeypatch):
    manager = process_executor._ExecutorManagerThread
    take_over, failures = manager.add_call_item_to_queue, []
    # Loaded, the thread that hands calls out comes to it after it was told to end.
    monkeypatch.setattr(
        manager, "add_call_item_to_queue", lambda self: None if self.pending_work_items else take_over(self)
    )
    monkeypatch.setattr(threading, "excepthook", failures.append)
    before = threading.excepthook
    threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,)).start()
    assert warnings_of_stopped_run() == []
    assert (failures, threading.excepthook) == ([], before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_start_is_heard_once_it_is_over(number):
    done = []
    with pytest.raises(Stopped) as caught, StopSignals():  # noqa: PT012  the order of steps is the matter
        with held_while_starting():
            signal.raise_signal(number)
            done.append("started")
        done.append("not reached")
    assert (done, caught.value.number) == (["started"], number)


def test_a_signal_that_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_while_starting():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)

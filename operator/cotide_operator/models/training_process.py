"""One training in a process of its own, which ends with us whatever happens.

Called by `retraining`. A pool of workers would do the same, but can't be told to drop a training that runs: a signal
to stop would then wait for the trees to grow. Invariant: when the call returns or is cancelled, the process is gone.
"""

from __future__ import annotations

import asyncio
import os
import signal
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final

from cotide_core.errors import CotideError, ModelError
from cotide_core.forecasts import CompletionSamples, QosSamples

Files = dict[str, bytes]
Samples = QosSamples | CompletionSamples

_NICE: Final = 10
"""A training gives way to the live loop on a small machine; chosen."""


def train(samples: Samples, seed: int) -> Files:
    """Train one predictor and return its files.

    Raises
    ------
    CotideError, ValueError
        When the samples do not suffice, for example because all of them kept their limit.
    """
    from cotide_predictors import serialisation  # heavy: loads xgboost and scikit-learn
    from cotide_predictors.completion.completion_model import train_completion
    from cotide_predictors.qos.qos_model import train_qos

    if isinstance(samples, QosSamples):
        return serialisation.to_files(train_qos(samples, random_state=seed))
    return serialisation.to_files(train_completion(samples, random_state=seed))


async def train_apart(samples: Samples, seed: int) -> Files:
    """Run `train` in a new process, at low priority.

    Raises
    ------
    ModelError
        When the training says no, or its process dies.
    """
    context = get_context("spawn")  # nothing inherited: a fork would copy sockets and threads of the live loop
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, samples, seed), name="training", daemon=True)
    await asyncio.to_thread(process.start)
    theirs.close()
    try:
        outcome = await asyncio.to_thread(_receive, ours)
    finally:
        process.kill()  # it has answered, or nobody waits for its answer any more
        await asyncio.to_thread(process.join)
    if isinstance(outcome, str):
        raise ModelError(outcome)
    if outcome is None:
        raise ModelError(f"the training process died (exit code {process.exitcode})")
    return outcome


def _receive(connection: Connection) -> Files | str | None:
    """Return the files, a sentence that says why there are none, or None when the process died."""
    with connection:
        try:
            outcome: Files | str = connection.recv()
        except (EOFError, OSError):
            return None
        return outcome


def _work(connection: Connection, samples: Samples, seed: int) -> None:
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the operator ends its training, not the terminal
    outcome: Files | str
    try:
        outcome = train(samples, seed)
    except (CotideError, ValueError) as error:
        outcome = str(error) or type(error).__name__
    with connection:
        try:
            connection.send(outcome)
        except OSError:  # the operator was killed: nobody waits
            return

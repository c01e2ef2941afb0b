"""One training in a separate process, which always ends with this process.

Called by `retraining` and `qos_learning`. A pool of workers would do the same, but can't cancel a running training: a
signal to stop would then wait for the trees to grow. Invariant: when the call returns or is cancelled, the process is
gone.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

from cotide_core.errors import CotideError, ModelError
from cotide_core.forecasts import CompletionSamples, QosSamples
from cotide_core.recording.samples import MeasuredMix

if TYPE_CHECKING:
    from cotide_predictors.learning.renewal import Renewal

Files = dict[str, bytes]
Samples = QosSamples | CompletionSamples

_NICE: Final = 10
"""A training gives way to the live loop on a small machine; chosen."""


def train(samples: Samples, seed: int) -> Files:
    """Train one predictor and return its files.

    Raises
    ------
    CotideError, ValueError
        When the samples are insufficient, for example because all of them kept their limit.
    """
    from cotide_predictors import serialisation  # heavy: loads xgboost and scikit-learn
    from cotide_predictors.completion.completion_model import train_completion
    from cotide_predictors.qos.qos_model import train_qos

    if isinstance(samples, QosSamples):
        return serialisation.to_files(train_qos(samples, random_state=seed))
    return serialisation.to_files(train_completion(samples, random_state=seed))


def renew(
    older: Sequence[MeasuredMix],
    latest: Mapping[str, Sequence[MeasuredMix]],
    champion_files: Mapping[str, bytes] | None,
    seed: int,
) -> Renewal:
    """Train a QoS model that challenges the one in use; see `cotide_predictors.learning.renewal`."""
    from cotide_predictors.learning import renewal  # heavy: loads xgboost

    return renewal.renew(older, latest, champion_files, seed)


async def train_apart(samples: Samples, seed: int) -> Files:
    """Run `train` in a new process, at low priority.

    Raises
    ------
    ModelError
        When the training fails, or its process dies.
    """
    files: Files = await _run_apart(train, samples, seed)
    return files


async def renew_apart(
    older: Sequence[MeasuredMix],
    latest: Mapping[str, Sequence[MeasuredMix]],
    champion_files: Mapping[str, bytes] | None,
    seed: int,
) -> Renewal:
    """Run `renew` in a new process, at low priority; raises as `train_apart` does."""
    renewal: Renewal = await _run_apart(renew, older, latest, champion_files, seed)
    return renewal


async def _run_apart(work: Callable[..., object], *arguments: object) -> Any:
    context = get_context("spawn")  # without inheritance: a fork would copy sockets and threads of the live loop
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, work, arguments), name="training", daemon=True)
    await asyncio.to_thread(process.start)
    theirs.close()
    try:
        outcome = await asyncio.to_thread(_receive, ours)
    finally:
        process.kill()  # it has answered, or the caller no longer waits for its answer
        await asyncio.to_thread(process.join)
    if isinstance(outcome, str):
        raise ModelError(outcome)
    if outcome is None:
        raise ModelError(f"the training process died (exit code {process.exitcode})")
    return outcome


def _receive(connection: Connection) -> object:
    """Return the result of the work, a sentence with the reason for no result, or None when the process died."""
    with connection:
        try:
            outcome: object = connection.recv()
        except (EOFError, OSError):
            return None
        return outcome


def _work(connection: Connection, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the operator ends its training, not the terminal
    outcome: object
    try:
        outcome = work(*arguments)
    except (CotideError, ValueError) as error:
        outcome = str(error) or type(error).__name__
    with connection:
        try:
            connection.send(outcome)
        except OSError:  # the operator was killed: no process waits
            return

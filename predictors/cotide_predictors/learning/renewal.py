"""One renewal of the QoS model: learn from the kept samples, judge on the latest, and find the contradicting part.

Called in a process of its own (see the operator's `training_process`). A challenger that loses is trained once more
without the samples of earlier times. Where the second one is better beyond noise, the kept samples contradict the
present ones (a service has changed, or the store was tampered with) and are dropped. Earlier samples with other
latencies than now are dropped before training (`contradiction`). Invariant: a promoted model was judged unchanged, on
samples that it did not see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cotide_core.errors import ModelError
from cotide_core.forecasts import QosForecaster
from cotide_core.recording.samples import MeasuredMix, qos_samples
from cotide_predictors import serialisation
from cotide_predictors.learning.challenge import (
    LEAST_DIFFERENCE,
    LEAST_IN_BLOCKS,
    Verdict,
    brier_terms,
    judge,
    split_latest,
    worse_beyond_noise,
)
from cotide_predictors.learning.contradiction import contradicts
from cotide_predictors.qos.qos_model import train_qos

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Renewal:
    """The outcome of a renewal.

    Attributes
    ----------
    files : of the model to promote; None where the present one stays.
    why_not : one sentence where it stays.
    older_contradict : whether the samples of earlier times are to be dropped.
    """

    files: Files | None
    why_not: str = ""
    older_contradict: bool = False


def renew(
    older: Sequence[MeasuredMix],
    latest: Mapping[str, Sequence[MeasuredMix]],
    champion_files: Mapping[str, bytes] | None,
    seed: int,
) -> Renewal:
    """Train a challenger and judge it against the model in use.

    Parameters
    ----------
    older : samples of earlier times, in no order.
    latest : the recent ones by service, each oldest first.
    champion_files : of the model in use; None without any: then a model that passes the training gate is taken, since
        it makes no decision before it is trusted.
    """
    earlier, held_out = split_latest(latest)
    champion = None if champion_files is None else serialisation.from_files(dict(champion_files))
    if champion is not None and not isinstance(champion, QosForecaster):
        raise ModelError("the model in use is not a QoS model")
    if older and contradicts(older, latest):
        return _without_contradicting(earlier, held_out, champion, seed)
    try:
        challenger = train_qos(qos_samples([*older, *earlier]), random_state=seed)
    except ModelError as error:
        if champion is None and not older:
            raise
        return (
            _without_older(earlier, held_out, champion, None, seed, str(error)) if older else Renewal(None, str(error))
        )
    if champion is None:
        return Renewal(serialisation.to_files(challenger))
    sentence = _loses(judge(challenger, champion, held_out))
    if sentence is None:
        return Renewal(serialisation.to_files(challenger))
    if not older:
        return Renewal(None, sentence)
    return _without_older(earlier, held_out, champion, challenger, seed, sentence)


def _without_contradicting(
    earlier: Sequence[MeasuredMix],
    held_out: Mapping[str, Sequence[MeasuredMix]],
    champion: QosForecaster | None,
    seed: int,
) -> Renewal:
    """Return the promotable files when the older samples have to go: None where the recent ones do not suffice."""
    try:
        fresh = train_qos(qos_samples(list(earlier)), random_state=seed)
    except ModelError as error:
        return Renewal(None, f"without kept samples, which have other latencies than now, {error}", True)
    sentence = None if champion is None else _loses(judge(fresh, champion, held_out))
    return Renewal(None if sentence else serialisation.to_files(fresh), sentence or "", True)


def _without_older(
    earlier: Sequence[MeasuredMix],
    held_out: Mapping[str, Sequence[MeasuredMix]],
    champion: QosForecaster | None,
    challenger: QosForecaster | None,
    seed: int,
    why_not: str,
) -> Renewal:
    try:
        fresh = train_qos(qos_samples(list(earlier)), random_state=seed)
    except ModelError:
        return Renewal(None, why_not)
    wins = champion is None or _loses(judge(fresh, champion, held_out)) is None
    contradict = challenger is None or _worse(challenger, fresh, held_out, beyond_noise=not wins)
    if wins:
        return Renewal(serialisation.to_files(fresh), older_contradict=contradict)
    return Renewal(None, why_not, contradict)


def _loses(verdict: Verdict) -> str | None:
    try:
        verdict.check()
    except ModelError as error:
        return str(error)
    return None


def _worse(
    one: QosForecaster,
    other: QosForecaster,
    held_out: Mapping[str, Sequence[MeasuredMix]],
    *,
    beyond_noise: bool,
) -> bool:
    """Whether one is worse than the other over all services together; noise is no excuse where the baseline won."""
    if not beyond_noise:
        verdict = judge(one, other, held_out)
        return verdict.challenger_brier > verdict.champion_brier + LEAST_DIFFERENCE
    judged = [samples for samples in held_out.values() if len(samples) >= LEAST_IN_BLOCKS]
    if not judged:
        return False
    terms = [(brier_terms(one, samples), brier_terms(other, samples)) for samples in judged]
    shortest = min(len(first) for first, _ in terms)
    return worse_beyond_noise(
        np.mean([first[-shortest:] for first, _ in terms], axis=0),
        np.mean([second[-shortest:] for _, second in terms], axis=0),
    )

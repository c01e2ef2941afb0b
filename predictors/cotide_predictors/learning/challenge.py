"""May a new model replace the one in use? Both forecast the latest samples of each service, which neither saw.

Called in the training process. The samples come in order of time, so neighbours are nearly the same; they are scored by
blocks, and a block counts once. Invariants: a challenger that is worse beyond noise for any service is refused, and so
is one that is worse for all together. Without a champion the heuristic is the champion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.errors import ModelError
from cotide_core.forecasts import QosForecaster
from cotide_core.kernels.array_types import Floats
from cotide_core.recording.samples import MeasuredMix, qos_samples

HELD_OUT: Final = 0.25
"""Share of each service's recent samples that is held out, the latest (the 3:1 of Ou 2024)."""
BLOCKS: Final = 8
"""Blocks of time in the held-out part (chosen: enough for a variance, and long enough to be independent)."""
LEAST_IN_BLOCKS: Final = 16
"""Held-out samples below which a service is not judged alone (two in each block)."""
NOISE: Final = 2.36
"""Standard errors that count as noise: Student's t for 7 degrees of freedom, 97.5 %."""
LEAST_DIFFERENCE: Final = 0.002
"""Negligible Brier points; a smaller difference counts as none (chosen)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a challenge.

    Attributes
    ----------
    worse : services with a challenger that is worse beyond noise, sorted.
    challenger_brier, champion_brier : over all held-out samples, with equal weight for each service.
    judged : services with enough held-out samples for a judgement of their own.
    """

    worse: tuple[str, ...]
    challenger_brier: float
    champion_brier: float
    judged: int

    def check(self) -> None:
        """Raise `ModelError` with one sentence unless the challenger may be promoted."""
        if self.worse:
            raise ModelError(
                f"the new model forecasts the latest samples of {', '.join(self.worse)} worse than the one in use"
            )
        if self.challenger_brier > self.champion_brier + LEAST_DIFFERENCE:
            raise ModelError(
                f"the new model's Brier score on the latest samples is {self.challenger_brier:.4f},"
                f" that of the one in use {self.champion_brier:.4f}"
            )


def split_latest(
    latest: Mapping[str, Sequence[MeasuredMix]],
) -> tuple[list[MeasuredMix], dict[str, list[MeasuredMix]]]:
    """Return the earlier samples, for training, and the latest share of each service, for the judgement."""
    learned: list[MeasuredMix] = []
    judged = {}
    for service, samples in latest.items():
        held = int(len(samples) * HELD_OUT)
        learned.extend(samples[: len(samples) - held])
        judged[service] = list(samples[len(samples) - held :])
    return learned, judged


def judge(challenger: QosForecaster, champion: QosForecaster, held_out: Mapping[str, Sequence[MeasuredMix]]) -> Verdict:
    """Compare two forecasters on the latest samples of each service, oldest first."""
    worse, judged = [], 0
    sums = np.zeros(2)
    counted = 0
    for service, samples in sorted(held_out.items()):
        if not samples:
            continue
        new, old = brier_terms(challenger, samples), brier_terms(champion, samples)
        sums += new.mean(), old.mean()
        counted += 1
        if len(samples) >= LEAST_IN_BLOCKS:
            judged += 1
            if worse_beyond_noise(new, old):
                worse.append(service)
    means = sums / max(1, counted)
    return Verdict(tuple(worse), float(means[0]), float(means[1]), judged)


def brier_terms(forecaster: QosForecaster, samples: Sequence[MeasuredMix]) -> Floats:
    """Return (n,) squared differences between probability and truth."""
    found = qos_samples(samples)
    broken = found.latency_milliseconds > found.mixes.limit_milliseconds
    return np.asarray((forecaster.violation_probability(found.mixes) - broken) ** 2)


def worse_beyond_noise(new: Floats, old: Floats, least: float = LEAST_DIFFERENCE) -> bool:
    """Whether the first terms are larger than the second beyond the noise between blocks of time.

    Parameters
    ----------
    new, old : (n,) n >= `BLOCKS`, in order of time. least : the largest negligible mean difference.
    """
    blocks = np.array([part.mean() for part in np.array_split(new - old, BLOCKS)])
    error = float(blocks.std(ddof=1)) / np.sqrt(BLOCKS)
    return bool(float(blocks.mean()) > max(least, NOISE * error))

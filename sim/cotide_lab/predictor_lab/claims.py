"""The printed claims of Naghshnejad 2019, chapters 5 to 7, judged on their own terms on each data set.

Called by `cotide lab report --claims`. A claim holds on a set when the whole 95 % interval lies on its side; where it
does not, the sentence gives the interval. Invariant: pure; a claim is left out when one of its predictors was not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictor_lab.blocks import LEAST_BLOCKS, RESAMPLES, Blocks
from cotide_lab.predictor_lab.cells import LabOutcome, Task


@dataclass(frozen=True, slots=True)
class Claim:
    """``one`` is better than ``other`` in the figure so that ``reached`` of the two means is at least ``printed``."""

    name: str
    task: Task
    figure: str
    one: str
    other: str
    printed: float
    reached: Callable[[Floats, Floats], Floats]
    source: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """A claim on one data set; ``low`` and ``high`` are None where there are too few blocks for an interval."""

    claim: str
    data: str
    printed: float
    found: float
    low: float | None
    high: float | None
    holds: bool
    sentence: str


def _gain(one: Floats, other: Floats) -> Floats:
    """Return the relative excess of ``one``."""
    return one / other - 1.0


def _fall(one: Floats, other: Floats) -> Floats:
    """Return the relative shortfall of ``one``."""
    return 1.0 - one / other


CLAIMS: Final[tuple[Claim, ...]] = (
    *(
        Claim(f"{filters} is 33 % more accurate than {rival}", "run-time", "accuracy", filters, rival, 0.33, _gain,
              "Naghshnejad 2019, sections 5.4.1 and 5.6")
        for filters in ("fmkf", "mlkf", "mlkf-printed")
        for rival in ("last-two", "exponential-smoothing")
    ),
    *(
        Claim(f"{network} is more accurate than {filters}", "run-time", "accuracy", network, filters, 0.0, _gain,
              "Naghshnejad 2019, chapter 6 after 5")
        for network in ("mdn", "mdn-printed")
        for filters in ("fmkf", "mlkf")
    ),
    Claim("the biased LSTM's MAPE is 60 % below the plain network's (29 to 11.5 %)", "usage-path", "mape",
          "lstm-inp-tp-bias", "ann", 0.6, _fall, "Naghshnejad 2019, Table 7.4"),
    Claim("the biased LSTM's MAPE is below that of the same time yesterday", "usage-path", "mape",
          "lstm-inp-tp-bias", "yesterday", 0.0, _fall, "Naghshnejad 2019, section 7.5"),
    Claim("consistency bias lowers the MAPE of both attentions", "usage-path", "mape",
          "lstm-inp-tp-bias", "lstm-inp-tp", 0.0, _fall, "Naghshnejad 2019, Table 7.4"),
)  # fmt: skip


def judged(outcomes: Iterable[LabOutcome]) -> list[Judgement]:
    """Return every claim on every data set with a run of both of its predictors."""
    known: dict[tuple[Task, str, str], dict[str, Blocks]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.cell.rank):
        if outcome.error is None:
            for figure, blocks in outcome.blocks.items():
                key = (outcome.cell.task, f"{outcome.cell.data} seed {outcome.cell.seed}", figure)
                known.setdefault(key, {})[outcome.cell.predictor] = blocks
    return [
        _judgement(claim, data, found[claim.one], found[claim.other])
        for claim in CLAIMS
        for (task, data, figure), found in known.items()
        if (task, figure) == (claim.task, claim.figure) and claim.one in found and claim.other in found
    ]


def _judgement(claim: Claim, data: str, one: Blocks, other: Blocks) -> Judgement:
    (above, below), (over, under) = (np.array(one), np.array(other))
    found = float(claim.reached(above.sum() / below.sum(), over.sum() / under.sum()))
    low, high = _interval(claim, above, below, over, under)
    holds = low is not None and low >= claim.printed
    spread = "too few blocks" if low is None or high is None else f"95 % interval {low:+.1%} to {high:+.1%}"
    verdict = "holds" if holds else "can't be judged" if low is None else "does not hold"
    sentence = f"{data}: {verdict}: {claim.name} [{claim.source}]: found {found:+.1%}, {spread}"
    return Judgement(claim.name, data, claim.printed, found, low, high, holds, sentence)


def _interval(claim: Claim, above: Floats, below: Floats, over: Floats, under: Floats) -> Sequence[float | None]:
    count = len(below)
    if count < LEAST_BLOCKS or len(under) != count:
        return None, None
    draws = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES).astype(float)
    first, second = draws @ below, draws @ under
    kept = (first > 0) & (second > 0)
    ratios = claim.reached((draws @ above)[kept] / first[kept], (draws @ over)[kept] / second[kept])
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)

"""What the windows of `interference` say: quantiles with intervals, ratios to the service alone, cpu that batch had.

Pure. Windows of one round are pairs: the ratio to the service alone is taken within each round, so that a machine that
is slower in one round than in another does not pass for a row. Intervals: Student's t on the logs of the windows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from cotide_lab.predictors.profiling.design import Interval, p95_interval

QUANTILES: Final = ("p50_ms", "p95_ms", "p99_ms", "p999_ms")
ALONE: Final = "alone"
WITHIN: Final = 1.1
"""Issue's bar for the p99 beside batch, as a multiple of that alone."""
LEAST_US: Final = 0.001
"""What a wait of nothing counts as: intervals are of logs."""
IDLE_SHARE: Final = 0.85
"""And for the part of the idle cpu that batch has."""


class Row(NamedTuple):
    """One circumstance that is measured in each round."""

    name: str
    block: str
    """Rows of one block share its pods: ``alone``, a class of the kernel, or a policy that places Jobs."""
    agent: tuple[str, ...] | None = None
    """Options of the node agent beside it; None without one."""


ROWS: Final = (
    Row(ALONE, "alone"),
    Row("burstable", "burstable"),
    Row("burstable+agent", "burstable", ()),
    Row("besteffort", "besteffort"),
    Row("besteffort+agent", "besteffort", ()),
    Row("besteffort+agent80", "besteffort", ("--target-share", "0.8")),
    Row("besteffort+agent-use", "besteffort", ("--contended-share", "1")),
    *(
        Row(f"{policy}{suffix}", policy, agent)
        for policy in ("fifo", "qpsm", "predictive")
        for suffix, agent in (("", None), ("+agent", ()))
    ),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One row over its rounds; latencies in ms, cpu in cores."""

    row: str
    windows: int
    latency: Mapping[str, Interval]
    p99_to_alone: Interval | None
    batch_pods: float
    batch_cores: float
    busy_share: float
    """Of the cpus that the node's pods may use."""
    idle_share: float | None
    """Of what was idle without batch, what batch used."""
    lag_ms: float
    queued_us: Interval | None
    """What a request waited in the mean while others had the cpu; None in journals of before it was measured."""
    queued_to_alone: Interval | None
    """One more than what that is above the service alone, in p99s of the service alone."""


def findings(windows: Sequence[Mapping[str, Any]], cores: int) -> list[Finding]:
    """Return one finding for each row that was measured, in the order of `ROWS`."""
    calm = {window["round"]: window for window in windows if window["row"] == ALONE}
    alone = {number: one["p99_ms"] for number, one in calm.items()}
    found = []
    for row in ROWS:
        own = [window for window in windows if window["row"] == row.name]
        if not own:
            continue
        ratios = [one["p99_ms"] / alone[one["round"]] for one in own if one["round"] in alone]
        queued = [one["queued_us"] for one in own if "queued_us" in one]
        added = [
            1.0 + max(0.0, one["queued_us"] - calm[one["round"]]["queued_us"]) / (1000.0 * calm[one["round"]]["p99_ms"])
            for one in own
            if "queued_us" in one and "queued_us" in calm.get(one["round"], ())
        ]
        batch, busy = (statistics.mean(one[name] for one in own) for name in ("batch_cores", "busy_share"))
        idle = cores * (1.0 - busy) + batch
        found.append(
            Finding(
                row.name,
                len(own),
                {name: p95_interval([one[name] for one in own]) for name in QUANTILES},
                p95_interval(ratios) if ratios and row.name != ALONE else None,
                statistics.mean(one["batch_pods"] for one in own),
                batch,
                busy,
                batch / idle if batch > 0 and idle > 0 else None,
                statistics.mean(one["lag_ms"] for one in own),
                p95_interval([max(one, LEAST_US) for one in queued]) if queued else None,
                p95_interval(added) if added and row.name != ALONE else None,
            )
        )
    return found


def bars(found: Sequence[Finding]) -> dict[str, dict[str, Any]]:
    """Return what was asked for, what was found, and whether the whole interval is within it."""
    by_row = {one.row: one for one in found}
    held: dict[str, dict[str, Any]] = {}
    close, full = by_row.get("besteffort+agent80"), by_row.get("besteffort+agent")
    if close is not None and close.p99_to_alone is not None:
        ratio = close.p99_to_alone
        held["p99 beside batch with the agent, at 80 % of the cpu"] = {
            "at_most": WITHIN, "found": ratio.middle, "low": ratio.low, "high": ratio.high, "met": ratio.high <= WITHIN,
        }  # fmt: skip
    if close is not None and close.queued_to_alone is not None:
        ratio = close.queued_to_alone
        held["the same, by the mean wait for the cpu that batch adds to a request"] = {
            "at_most": WITHIN, "found": ratio.middle, "low": ratio.low, "high": ratio.high, "met": ratio.high <= WITHIN,
        }  # fmt: skip
    if full is not None and full.idle_share is not None:
        held["batch's part of the idle cpu with the agent"] = {
            "at_least": IDLE_SHARE, "found": full.idle_share, "met": full.idle_share >= IDLE_SHARE,
        }  # fmt: skip
    return held


def as_json(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON has them: an interval that is not known is null at its ends."""
    return [_finite(asdict(one)) for one in found]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(found: Sequence[Finding]) -> str:
    """Return findings as a table of Markdown; microseconds, with intervals."""
    heads = [
        "",
        "p50 µs",
        "p95 µs",
        "p99 µs",
        "p99.9 µs",
        "p99 to alone",
        "queued µs",
        "batch pods",
        "batch cores",
        "node busy",
    ]
    lines = [f"| {' | '.join(heads)} | of the idle cpu |", "|" + "---|" * (len(heads) + 1)]
    for one in found:
        ratio = "" if one.p99_to_alone is None else _interval(one.p99_to_alone, 1.0, ".2f")
        share = "" if one.idle_share is None else f"{one.idle_share:.0%}"
        cells = [_interval(one.latency[name], 1000.0, ".0f") for name in QUANTILES]
        queued = "" if one.queued_us is None else _interval(one.queued_us, 1.0, ".1f")
        cells += [ratio, queued, f"{one.batch_pods:.1f}", f"{one.batch_cores:.2f}", f"{one.busy_share:.0%}", share]
        lines.append(f"| {one.row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _interval(found: Interval, factor: float, form: str) -> str:
    middle, low, high = (format(factor * one, form) for one in (found.middle, found.low, found.high))
    return f"{middle} ({low}-{high})" if math.isfinite(found.high) else middle

"""`cotide evaluate` on samples whose latencies are a straight line of the rate.

Imported by the tests of the command.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cotide_cli import main as entry


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["cotide", *arguments])
    with pytest.raises(SystemExit) as done:
        entry.main()
    code = done.value.code
    assert isinstance(code, int)
    return code


def write_qos_samples(directory: Path) -> Path:
    """Latency 1 ms + 1 ms for each 10,000 requests/s, twice that beside a job."""
    header = "requests_per_second,other_requests_per_second,limit_ms,cpu_pressure,latency_p95_ms,jobs"
    rows = [f"{rate}000,0,3,0,{1 + rate / 10:g}," for rate in range(60)]
    rows += [f"{rate}000,0,3,0.5,{2 + rate / 5:g},sort:1:1e8" for rate in range(60)]
    path = directory / "qos.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path

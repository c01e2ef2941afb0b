"""Two commits side by side: each commit's own benchmark is found, wherever it stood then."""

from __future__ import annotations

from pathlib import Path

import pytest
from paired import script_in


@pytest.mark.parametrize("wing", ["benchmarks", "benchmarks/engine"])
def test_a_benchmark_is_found_by_its_name_in_whatever_folder_a_commit_had_it(tmp_path: Path, wing: str) -> None:
    folder = tmp_path / wing
    folder.mkdir(parents=True)
    (folder / "bench_engine.py").touch()
    assert script_in(tmp_path, "bench_engine.py") == folder / "bench_engine.py"


def test_a_benchmark_that_a_commit_has_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has 0 benchmarks of the name bench_none\.py"):
        script_in(tmp_path, "bench_none.py")

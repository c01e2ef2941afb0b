"""Who starts the engine for the first time hears that kernels are compiled, and hears nothing the second time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cotide_core.kernels.compiled import compiles

KERNEL = """
import numpy as np
from cotide_core.kernels.compiled import compiled

@compiled
def double(values: np.ndarray) -> np.ndarray:
    return values * 2
"""
MAIN = """
import numpy as np
from cotide_core.kernels.compiled import when_compiling
when_compiling(lambda: print("compiling"))
from some_kernel import double
print(double(np.arange(3))[2])
print(double(np.ones(3))[2])  # of another type: compiled, too, and not told again
"""


@pytest.mark.skipif(not compiles(), reason="needs numba, and its compiler switched on")
def test_compiling_is_told_once_and_only_where_the_machine_code_is_not_on_disk(tmp_path: Path) -> None:
    (tmp_path / "some_kernel.py").write_text(KERNEL)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    said = [
        subprocess.run(
            [sys.executable, "-c", MAIN],
            env={**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.split()
        for _ in range(2)
    ]
    assert said == [["compiling", "4", "2.0"], ["4", "2.0"]]

"""Kueue, found in our cache or built once from its published module, with the manifests of that version.

Called by the fixtures of ``tests/real/kueue``, which never build, and as a program by ``make test-kueue``, which does::

    PYTHONPATH=tests/controlplane python tests/controlplane/kueue_program.py

It prints the folder; exit code 77 and one line where there is no way.
"""

from __future__ import annotations

import sys
from typing import Final

from binaries import print_folder, tell_on_stderr
from module_program import ModuleProgram

KUEUE: Final = ModuleProgram(
    name="kueue",
    title="Kueue",
    module="sigs.k8s.io/kueue",
    version="v0.15.0",
    checksum="h1:9Khzc2ne6/eWuZx5o+R4KlVBzh3kZkTIMzpPC2e8Spg=",
    package="./cmd/kueue",
    minutes=5,
)


def main() -> int:
    """Print the folder of the program."""
    return print_folder(lambda: KUEUE.find_or_build(tell_on_stderr).folder, "the tests beside Kueue")


if __name__ == "__main__":
    sys.exit(main())

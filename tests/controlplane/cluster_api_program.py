"""Cluster API's own controllers (no provider), found in our cache or built once from their published module.

Called by the fixtures of ``tests/real/cluster_api``, which never build, and as a program by ``make test-cluster-api``,
which does::

    PYTHONPATH=tests/controlplane python tests/controlplane/cluster_api_program.py

It prints the folder; exit code 77 and one line where there is no way.
"""

from __future__ import annotations

import sys
from typing import Final

from binaries import print_folder, tell_on_stderr
from module_program import ModuleProgram

CLUSTER_API: Final = ModuleProgram(
    name="cluster-api",
    title="Cluster API",
    module="sigs.k8s.io/cluster-api",
    version="v1.13.6",
    checksum="h1:imZVIstbRIq2DoKftQv0wPm+vyhWXrE3Zft8E43maqo=",
    package=".",
    minutes=3,
)
"""1.14.2 can't be built like this: its go.mod names a folder that is no part of the module."""


def main() -> int:
    """Print the folder of the program."""
    return print_folder(lambda: CLUSTER_API.find_or_build(tell_on_stderr).folder, "the tests beside Cluster API")


if __name__ == "__main__":
    sys.exit(main())

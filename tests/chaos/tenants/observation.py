"""The types of the fixture ``observe``, which carries out one run and returns what others saw of it."""

from __future__ import annotations

from collections.abc import Callable

from poison_run import PoisonRun, Sight
from servers import Server

from cotide_kube.client import KubeClient

MakeRun = Callable[[Server, KubeClient], PoisonRun]
Observe = Callable[[MakeRun], tuple[Sight, int]]
"""Returns with the sight how many requests of the disturbance the server accepted."""

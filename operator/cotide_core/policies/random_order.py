"""The paper's random strategy: any job, any node that has room (Ou 2024, section 5.4)."""

from __future__ import annotations

import numpy as np

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.scoring import RandomRank
from cotide_core.queueing.ordering import RandomOrder


def random_order(config: SchedulerConfig) -> Policy:
    """Pods in an order drawn from their uids, each to a uniformly drawn feasible node; the seed fixes both draws."""
    return Policy("random", RandomOrder(config.seed), RandomRank(np.random.default_rng(config.seed)))

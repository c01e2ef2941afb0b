"""Whether a queue is after a restart as it was before, as far as the API tells it: creation times are whole seconds.

Asked by `chaos_run` each time an operator is ready that follows one whose queue is known.
"""

from __future__ import annotations

from typing import Any

from invariant_checker import InvariantChecker
from replica import Replica


class QueueOrder:
    """Compares the queue before and after: of pods that wait in both, made in different seconds or of other classes.

    Attributes
    ----------
    compared : pairs of pods that were.
    """

    def __init__(self, checker: InvariantChecker) -> None:
        self._checker = checker
        self.violations: list[str] = []
        self.compared = 0

    def compare(self, replica: Replica, state: dict[str, Any]) -> None:
        before, replica.positions = replica.positions, {}
        after: dict[str, int] = state["positions"]
        both = sorted((key for key in before if key in after and key in self._checker.pods), key=before.__getitem__)
        pods = [self._checker.pods[key] for key in both]
        for first, pod in enumerate(pods):
            for other in pods[first + 1 :]:
                if pod.created == other.created and pod.cls == other.cls:
                    continue
                self.compared += 1
                if after[pod.key] > after[other.key]:
                    self.violations.append(
                        f"after a restart {other.key} ({other.cls}, {other.created}) is before {pod.key} "
                        f"({pod.cls}, {pod.created}), and was behind it"
                    )

"""The configuration of the operators of a run, whose pauses are short."""

from __future__ import annotations

from typing import Final

# The risk is such that a job of half a node, alone beside a service, is let in (heuristic: load .5 + .05, p .41) and
# two at a time mostly are not: at the usual .1 it would wait for ever where a service has come to every node.
CONFIG: Final = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
policy: {policy}
leaderElection: {{enabled: {election}, leaseName: {lease}, leaseDurationSeconds: 6, renewDeadlineSeconds: 5, \
retryPeriodSeconds: 0.1}}
queue: {{backoffInitialSeconds: 0.05, backoffMaxSeconds: 0.4, unschedulableFlushSeconds: 1}}
hierarchical: {{evictionRetrySeconds: 0.1, nominationSeconds: 3, evictionTimeoutSeconds: 2}}
reclaimed: {{publish: false}}
qos: {{riskThresholdProbability: 0.45}}
ledger: {{directory: {ledger}}}
"""

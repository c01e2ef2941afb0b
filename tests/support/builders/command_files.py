"""Files that commands of nodes and places ask for: one machine type with an actuator, one data centre."""

from __future__ import annotations

from typing import Final

CONFIG: Final = """
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
provisioning:
  machineTypes:
    - {name: small, cpu: "4", memory: 8Gi, count: 10, idleWatts: 60, peakWatts: 150}
  actuator: {command: ["true"]}
"""
PLACEMENT: Final = """
deployment: web
delaySeconds: 0.1
serviceRate: 50
centres:
  - {name: east, context: cotide, servers: 4, delays: {all: 0.08}}
"""

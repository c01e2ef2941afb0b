"""The live shell: kopf handlers, translation, the loop, binding, telemetry and settings."""

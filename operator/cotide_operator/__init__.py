"""The live shell: kopf handlers, translation, the loop, binding, metrics and settings."""

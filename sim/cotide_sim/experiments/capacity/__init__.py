"""Capacity in time: container-based provisioning beside its rivals (Zhang and Boutaba 2014, sec. III)."""

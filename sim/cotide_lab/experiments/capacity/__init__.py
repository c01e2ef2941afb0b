"""Capacity in time: container-based provisioning compared with its baselines (Zhang and Boutaba 2014, sec. III)."""

"""Capacity in time: container-based provisioning compared with its rivals (Zhang and Boutaba 2014, sec. III)."""

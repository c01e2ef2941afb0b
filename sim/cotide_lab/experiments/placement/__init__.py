"""Capacity in place: servers by data centre, predictive control and baselines (Zhang and Boutaba 2014, sec. II)."""

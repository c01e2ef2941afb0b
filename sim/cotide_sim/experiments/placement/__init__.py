"""Capacity in place: servers over data centres by predictive control, and rivals (Zhang and Boutaba 2014, sec. II)."""

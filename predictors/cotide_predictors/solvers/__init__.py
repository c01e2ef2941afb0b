"""Solvers behind the core's protocols: the core decides what is asked, and imports none of them."""

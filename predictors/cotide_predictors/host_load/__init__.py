"""Forecasts of host load: the usage of online pods, and the allocation of batch and gratis pods, in the next slots."""

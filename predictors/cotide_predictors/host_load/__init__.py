"""Forecasts of host load: what online pods will use and what batch and gratis pods will hold in the next slots."""

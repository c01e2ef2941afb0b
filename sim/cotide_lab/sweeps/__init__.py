"""Sweeps: many logs, policies, sources of run times and seeds, each cell run once and kept, on processes or on Dask."""

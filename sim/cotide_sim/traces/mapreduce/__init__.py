"""Logs of MapReduce clusters."""

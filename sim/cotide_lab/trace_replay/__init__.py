"""Replay of a batch log under scheduling policies: jobs in, schedules, metrics with intervals and a report out."""

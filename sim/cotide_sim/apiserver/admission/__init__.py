"""Admission: which webhooks see a write, how they are called, what their answers change."""

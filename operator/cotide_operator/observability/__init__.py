"""Metrics, the HTTP server that serves them, logs, and the ledger on disk."""

"""The connection to an API server: how many requests it carries at a time, and why it fails."""

"""Batch logs from generators, and synthetic job lists."""

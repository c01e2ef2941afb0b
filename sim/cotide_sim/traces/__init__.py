"""Readers of real traces and measured tables: files to arrays or core values; a broken row is named."""

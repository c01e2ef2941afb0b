"""Kinds: names, schemas, defaults, validation, built in and custom."""

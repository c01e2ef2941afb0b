"""Traces of jobs and machines as batch logs."""

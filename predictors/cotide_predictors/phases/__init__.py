"""Phases of tasks learned from the usage of earlier runs of their type."""

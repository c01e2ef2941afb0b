"""Phases of tasks learned from what earlier runs of their type used."""

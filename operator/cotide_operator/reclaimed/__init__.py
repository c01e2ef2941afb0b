"""Reclaimed capacity as extended resources: what nodes publish and what pods ask for."""

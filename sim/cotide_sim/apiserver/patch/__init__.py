"""Patches: JSON, merge, strategic merge, server-side apply."""

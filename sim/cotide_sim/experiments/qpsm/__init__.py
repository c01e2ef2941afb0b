"""Waiting under QPSM beside FIFO and random order (Ou 2024)."""

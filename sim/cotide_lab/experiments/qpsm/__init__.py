"""Waiting under QPSM compared with FIFO and random order (Ou 2024)."""

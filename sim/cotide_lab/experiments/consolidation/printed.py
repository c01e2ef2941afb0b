"""The printed figures of Wen et al.: Tables I and II. Figs. 5 to 10 are pictures that only the text describes.

Read by `tables`. Each entry is nodes used and transfer, means over instances (100, as the fractions show).
"""

from __future__ import annotations

from typing import Final

PRINTED: Final[dict[tuple[str, int], dict[str, tuple[float, float]]]] = {
    ("normal", 32): {"DMNS": (16.58, 599.77), "DMAS": (16.58, 659.01), "BFD": (16.58, 1073.85)},
    ("normal", 64): {"DMNS": (32.26, 1194.32), "DMAS": (32.26, 1318.99), "BFD": (32.26, 2176.14)},
    ("normal", 128): {"DMNS": (63.82, 2427.37), "DMAS": (63.82, 2712.19), "BFD": (63.82, 4438.20)},
    ("normal", 256): {"DMNS": (127.23, 4853.39), "DMAS": (127.23, 5366.64), "BFD": (127.23, 8887.95)},
    ("uniform", 32): {"DMNS": (16.16, 394.46), "DMAS": (16.16, 440.73), "BFD": (16.16, 932.07)},
    ("uniform", 64): {"DMNS": (31.72, 806.39), "DMAS": (31.72, 887.54), "BFD": (31.72, 1909.15)},
    ("uniform", 128): {"DMNS": (63.64, 1607.06), "DMAS": (63.64, 1800.07), "BFD": (63.64, 3929.89)},
    ("uniform", 256): {"DMNS": (127.27, 3237.21), "DMAS": (127.27, 3616.10), "BFD": (127.27, 7943.63)},
}
INSTANCES: Final = 100
"""Instances behind each printed mean: the node counts are whole numbers over 100."""

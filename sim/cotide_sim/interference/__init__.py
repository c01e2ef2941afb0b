"""How pods on one machine slow each other: the seam, and its generated and measured models."""

"""The `cotide` command: the only package that wires the others together."""

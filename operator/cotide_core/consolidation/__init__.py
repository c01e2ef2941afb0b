"""Consolidation: the same applications on fewer nodes, with few moves.

Called by the operator, by `consolidate_command` and by `whatif_command`. `removal` works on the engine's snapshot and
asks the engine's own rules. The planners of the papers are in `cotide_lab.consolidation`.
"""

"""Consolidation: the same applications on fewer nodes, with few moves.

Called by the operator, by `consolidate_command` and by `whatif_command`. `removal` works on the engine's snapshot and
asks the engine's own rules. `instance` holds applications and nodes as whole-number arrays; the papers' planners in
`cotide_lab.consolidation` take it, too.
"""

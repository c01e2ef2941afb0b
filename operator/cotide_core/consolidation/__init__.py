"""Consolidation: the same applications on fewer nodes, with few moves.

Called by the experiments, by `consolidate_command` and by `whatif_command`. The algorithms here work on whole-number
arrays only: `kmns`, `dmns`, `dmas`, `bfd`, `ffd` and `hsa` of Wen et al., a bound by column generation, and a plan that
is compared with it. `removal` works on the engine's snapshot and asks the engine's own rules.
"""

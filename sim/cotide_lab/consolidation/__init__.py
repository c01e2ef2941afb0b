"""Planners of the papers for consolidation: the same applications on fewer nodes, with few moves.

Called by the experiments. The algorithms work on whole-number arrays only: `kmns`, `dmns`, `dmas`, `bfd`, `ffd` and
`hsa` of Wen et al., a bound by column generation, and a plan that is compared with it.
"""

"""Adapters of solvers to the programs of `cotide_core.provisioning.programs`: HiGHS and Clarabel.

A package of its own, next to the predictors: the core may not import solvers, and a solver is no estimator. It knows
only programs: no cluster, no clock, no files. Invariant: an answer is a value, also when there is none.
"""

"""A world of jobs with tasks in phases, in virtual time, with the rules of `cotide_core.phases`.

It is separate from the general world (`cluster`). There each pod is an object and each start a cycle of the engine, and
a day of Facebook's jobs has a million tasks. The loop of `world_kernel` is one array kernel, as the trace replay's are,
and calls the same Algorithm 2 that is tested in the core.
"""

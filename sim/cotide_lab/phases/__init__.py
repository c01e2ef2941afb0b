"""A world of jobs with tasks in phases, in virtual time (Zhang and Boutaba 2014, sec. IV).

It is separate from the general world (`cluster`). There each pod is an object and each start a cycle of the engine, and
a day of Facebook's jobs has a million tasks. The loop of `world_kernel` is one array kernel, as the trace replay's are,
and calls the same Algorithm 2 that is tested alone. `tables` holds jobs, tasks and nodes as arrays. `utility` is eqs.
14 to 17, `safe_state` prevents deadlocks between tasks, and `node_report` is Algorithm 2.
"""

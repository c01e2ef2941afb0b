"""Phases: work with changing needs, scheduled by its present needs (Zhang and Boutaba 2014, sec. IV).

Called by `cotide_lab.phases`. `profile` is a user's statement about a task, and `tables` holds jobs, tasks and nodes as
arrays. `utility` is eqs. 14 to 17, `safe_state` prevents deadlocks between tasks, and `node_report` is Algorithm 2.
"""

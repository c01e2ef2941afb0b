"""Phases: work whose needs change while it runs, scheduled by what it needs now (Zhang and Boutaba 2014, sec. IV).

Called by `cotide_sim.phases`. `profile` is what a user states of a task, `tables` holds jobs, tasks and nodes as
arrays, `utility` is eqs. 14 to 17, `safe_state` keeps tasks from waiting for each other for ever, and `node_report` is
Algorithm 2.
"""

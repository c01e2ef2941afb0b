"""Phases: work with changing needs, scheduled by its present needs (Zhang and Boutaba 2014, sec. IV).

`profile` is a user's statement about a task, `progress` follows a pod through its phases, and `growth` decides the
request of a phase. The paper's Algorithm 2 is in `cotide_lab.phases`.
"""

"""Run times of live pods from the habits of their owners: the replay's mixture, which learns from completions as they
come.
"""

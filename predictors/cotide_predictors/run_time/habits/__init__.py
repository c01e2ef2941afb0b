"""Run times of live pods from the habits of their owners: the replay's mixture, fed by completions as they come."""

"""A park of machines that are switched on and off under a stream of tasks, and services over data centres."""

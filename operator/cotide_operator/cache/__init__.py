"""The latest state of every relevant object, as the reflectors received it, and the latest decision about each pod."""

"""The latest object of everything that matters, as the reflectors saw it, and the latest decision about each pod."""

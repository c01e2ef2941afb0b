"""The scheduling queue: who waits, in which order, and which pods enter it."""

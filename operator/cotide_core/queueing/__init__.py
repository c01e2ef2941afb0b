"""The scheduling queue: the waiting pods, their order, and the rules of entering the queue."""

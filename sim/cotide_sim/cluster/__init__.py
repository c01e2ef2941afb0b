"""The general world: machines, an event queue, the real engine, and the figures of a run; without HTTP."""

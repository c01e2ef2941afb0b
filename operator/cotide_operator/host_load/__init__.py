"""Live host load: usage of pods, slots of each node, forecasts of the next slot, their scores, and the offers."""

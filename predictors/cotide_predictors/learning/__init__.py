"""Learning that can be left on: which samples are kept, whether a new model may replace the old, and whom to trust."""

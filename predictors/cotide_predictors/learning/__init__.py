"""Learning that can run unattended: which samples are kept, whether a new model may replace the old, and which
forecasts to trust.
"""

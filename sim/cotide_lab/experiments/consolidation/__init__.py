"""Consolidation: the tables and figures of Wen et al., and days of recorded loads."""

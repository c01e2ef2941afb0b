"""Scheduling on forecast slack beside scheduling without (Jiang et al.)."""

"""Scheduling on forecast slack compared with scheduling without forecasts (Jiang et al.)."""

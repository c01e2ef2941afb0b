"""Run times as state space models by user (Naghshnejad 2019, chapter 5)."""

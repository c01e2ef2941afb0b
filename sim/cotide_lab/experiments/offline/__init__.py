"""Approximation algorithms on jobs known beforehand (Naghshnejad 2019, chapter 3)."""

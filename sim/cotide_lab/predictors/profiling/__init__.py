"""Measuring one service next to batch work: which window comes next, when a cell is known, and the findings."""

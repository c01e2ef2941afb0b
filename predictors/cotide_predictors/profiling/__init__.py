"""Measuring one service beside batch work: which window comes next, when a cell is known, what was found."""

"""One placement: filter, score, choose; its instruction, its reason, and who is tried again when."""

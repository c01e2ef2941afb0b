"""One placement: filter, score, choose; its instruction, its reason, and the pods to retry."""

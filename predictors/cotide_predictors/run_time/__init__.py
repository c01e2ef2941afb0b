"""Run times of jobs forecast at submission, from what has completed before: heuristics, regression, distributions."""

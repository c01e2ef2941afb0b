"""Run times of jobs, forecast at submission from completed jobs: heuristics, regression, distributions."""

"""Run-time forecasts in the order of a queue: submissions are answered and completions learned one after the other."""

"""What is believed of the future without or beside a model: heuristics, cached run times, reliability, starts."""

"""Run-time forecasts as a queue asks for them: submissions answered, completions told, one after the other."""

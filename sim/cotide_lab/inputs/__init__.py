"""Input of the research commands: traces, samples, and the options that name them."""

"""Live host load: what pods use, each node's slots, forecasts of the next, their scores, and what they offer."""

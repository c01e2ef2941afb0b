"""API objects to core events: the one place where raw objects are read."""

"""The loop that owns the engine, and what carries its instructions out: bindings, evictions, nominations."""

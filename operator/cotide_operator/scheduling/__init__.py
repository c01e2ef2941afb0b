"""The loop that owns the engine, and the modules that carry out its instructions: bindings, evictions, nominations."""

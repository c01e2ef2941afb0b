"""Series of load and request rates by slot."""

"""The configuration file: its sections, each checked in full before anything starts."""

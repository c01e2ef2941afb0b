"""The node agent: holds batch and gratis pods back on their node while services need its cpu, within a second."""

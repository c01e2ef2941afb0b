"""Which replica decides, and what it leaves for the next one."""

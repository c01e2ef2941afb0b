"""The commands of `cotide`, one a module, and what several of them read or print."""

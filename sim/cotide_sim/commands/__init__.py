"""Commands of the group "On this machine": each module holds one click command."""

"""Commands of the group "Research": each module holds one click command."""

"""The verbs: get and list, create, replace and patch, delete, and the subresources."""

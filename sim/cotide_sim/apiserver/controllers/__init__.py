"""Automatic consequences of changes: garbage collection, namespaces, disruption budgets."""

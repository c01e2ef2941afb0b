"""What follows from a change without anyone asking: garbage collection, namespaces, disruption budgets."""

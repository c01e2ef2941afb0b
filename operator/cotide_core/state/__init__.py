"""The state of the cluster as the engine knows it, and the columnar snapshot for the decisions of one cycle."""

"""The state of the cluster as the engine knows it, and the columnar snapshot that one cycle decides on."""

"""Experiments: each reads public data, runs the project on it and reports its figures with the published ones."""

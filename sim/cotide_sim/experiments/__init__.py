"""Experiments: each reads public data, runs the project on it and reports beside what was published."""

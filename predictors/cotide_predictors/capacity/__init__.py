"""Estimators for capacity: task classes, arrival rates and the containers that will be needed."""

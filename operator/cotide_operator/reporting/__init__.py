"""Publishes decisions as events, annotations, statuses and metrics; decides nothing."""
